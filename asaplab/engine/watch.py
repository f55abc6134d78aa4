"""Watching device processes: a process descriptor tells of a death at once, however it came about."""

from __future__ import annotations

import contextlib
import os
import select
import signal

from asaplab.errors import DeviceLost


class Watch:
    """Process descriptors of all devices of an instance.

    Args:
        pids: device name to process id.
    """

    def __init__(self, pids: dict[str, int]) -> None:
        self.pids = dict(pids)
        self._names: dict[int, str] = {}
        self._poll = select.poll()
        for name, pid in pids.items():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                raise DeviceLost(f"device {name!r} (process {pid}) died while it was starting") from None
            self._names[descriptor] = name
            self._poll.register(descriptor, select.POLLIN)

    def check(self) -> None:
        """Raises:
        DeviceLost: a device process has ended; the message names the device.
        """
        ended = [self._names[descriptor] for descriptor, _ in self._poll.poll(0)]
        if ended:
            named = ", ".join(f"device {name!r} (process {self.pids[name]})" for name in sorted(ended))
            raise DeviceLost(f"{named} died during the run; the run was ended and everything it held was released")

    def kill(self) -> None:
        """End what is still there; a descriptor, unlike a number, can never mean another process."""
        for descriptor in self._names:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    def close(self) -> None:
        for descriptor in self._names:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._names = {}
        self._poll = select.poll()
