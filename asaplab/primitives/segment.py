"""Memory that the processes of an instance share: owned by the parent, gone with it.

A segment is a memfd: it has no name that could leak, and vanishes with the last process that maps it. Its pages are
allocated when it is made, so a full machine is an error there and not a SIGBUS later. The first page holds a magic
number, the layout's ABI, an epoch, the abort word and the doorbell: a counter that whoever changes something rings.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import secrets
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from asaplab.errors import InputError
from asaplab.primitives.backend import ABI, core
from asaplab.primitives.layout import ABORT_AT, BELL_AT, EPOCH_AT, PAGE, available_bytes

MAGIC = int.from_bytes(b"asap", "little") << 32 | ABI


class Aborted(Exception):
    """The instance is being torn down; every wait on a segment ends with this."""


class Segment:
    """A shared segment of ``size`` bytes. ``path`` opens it in another process while its owner lives."""

    def __init__(self, fd: int, path: str) -> None:
        self.path = path
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self._map = mmap.mmap(fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    @classmethod
    def create(cls, name: str, size: int) -> Segment:
        """A new segment of at least ``size`` bytes, owned by this process.

        Raises:
            InputError: so much memory is not free.
        """
        size = max(size, PAGE)
        refusal = f"segment {name} needs {size:,} bytes of memory that are not free; lower S (--max-batch-tokens)"
        if size > available_bytes():  # the kernel would kill a process rather than refuse
            raise InputError(refusal)
        fd = os.memfd_create(f"asaplab-{name}")
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.ENOSPC, errno.ENOMEM):
                raise
            raise InputError(refusal) from error
        segment = cls(fd, f"/proc/{os.getpid()}/fd/{fd}")
        struct.pack_into("<QQQ", segment._map, 0, MAGIC, 0, secrets.randbits(31) | 1)
        return segment

    @classmethod
    def open(cls, path: str) -> Segment:
        """Map a segment of another process (or this one).

        Raises:
            InputError: it is gone, or not a segment of this version.
        """
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"segment {path} cannot be opened ({error.strerror}); its owner must be alive") from error
        try:
            if os.fstat(fd).st_size < PAGE:
                raise InputError(f"{path} is not a segment of asaplab; give the path of one")
            segment = cls(fd, path)
        finally:
            os.close(fd)
        segment._fd = -1
        if core.load(segment.address) != MAGIC:
            raise InputError(f"{path} is not a segment of this version of asaplab; start all devices from one")
        return segment

    @property
    def epoch(self) -> int:
        """A number drawn when the segment was made; the upper half of its owner's sequence numbers."""
        return core.load(self.address + EPOCH_AT)

    @property
    def bell_address(self) -> int:
        return self.address + BELL_AT

    @property
    def abort_address(self) -> int:
        return self.address + ABORT_AT

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A view of the segment's memory from ``offset`` bytes on."""
        count = 1
        for extent in shape:
            count *= extent
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self._map, dtype=dtype, count=count, offset=offset).view(shape)

    def array(self, offset: int, shape: tuple[int, ...], dtype: Any, stride: int | None = None) -> np.ndarray:
        """Likewise for numpy; ``stride`` bytes from one entry of the first axis to the next."""
        view: np.ndarray = np.ndarray(shape, dtype, self._map, offset)
        if stride is None:
            return view
        return np.ndarray(shape, dtype, self._map, offset, (stride, *view.strides[1:]))

    def bell(self) -> int:
        """The doorbell's count; hand it to ``wait`` after a look at what was to change."""
        return core.heard(self.bell_address)

    def ring(self) -> None:
        core.ring(self.bell_address)

    def wait(self, heard: int, timeout_s: float, spin: int = 0) -> bool:
        """Sleep until the bell has rung since ``heard``, or until the time is up (False).

        Raises:
            Aborted: the instance is being torn down.
        """
        self.check()
        rung = core.wait_bell(self.bell_address, heard, spin, int(timeout_s * 1e9))
        self.check()
        return rung

    def check(self) -> None:
        """Raises Aborted if the instance is being torn down."""
        if core.load(self.abort_address):
            raise Aborted

    def close(self) -> None:
        """Let go of it. Memory that tensors still look at stays until they are gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def abort(segments: Iterable[Segment]) -> None:
    """End every wait on these segments."""
    for segment in segments:
        core.store(segment.abort_address, 1)
        segment.ring()
