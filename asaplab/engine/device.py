"""What the devices of every role have in common: a thread, a clock, an inbox and a log of spans."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from asaplab.core import TTFT_PARTS
from asaplab.engine.pace import Pacer
from asaplab.engine.spec import DeviceSpec
from asaplab.errors import AsapError
from asaplab.primitives.segment import Aborted, Segment

now_ns = time.monotonic_ns  # one clock for all processes of a machine


class Timeline:
    """The way of one batch, cut into TTFT parts: every mark closes the stretch since the last one, so they sum up."""

    def __init__(self, start_ns: int) -> None:
        self.at_ns = start_ns
        self.parts_ns = dict.fromkeys(TTFT_PARTS, 0)

    def mark(self, part: str, until_ns: int) -> None:
        """Give the time up to ``until_ns`` to a part; a stamp from before the last mark gives nothing."""
        if until_ns > self.at_ns:
            self.parts_ns[part] += until_ns - self.at_ns
            self.at_ns = until_ns


class Device:
    """One device of an instance; subclasses fill in ``load``, ``step`` and ``wake``.

    The thread reports ``ready`` after loading, ``failed`` with one sentence if anything goes wrong, and stops when it
    is told to or when the segments are aborted. ``progress`` counts pieces of work: health is progress, not presence.
    """

    def __init__(self, spec: DeviceSpec, report: Callable[..., None]) -> None:
        self.spec = spec
        self.report = report
        self.inbox: deque[dict[str, Any]] = deque()
        self.stopped = False
        self.progress = 0
        self.waiting_for = "start"
        self.depth = 0  # batches or regions that wait here
        self.busy_ns = 0
        self.spans: deque[tuple] = deque()
        self.pacer = Pacer(spec.costs, spec.pace)
        self._thread = threading.Thread(target=self._live, name=spec.name, daemon=True)

    # -------------------------------------------------------------- life

    def start(self) -> None:
        self._thread.start()

    def tell(self, message: dict[str, Any]) -> None:
        """Hand over a control message; called on the worker's event loop."""
        self.inbox.append(message)
        self.wake()

    def stop(self, timeout_s: float) -> None:
        self.stopped = True
        self.wake()
        self._thread.join(timeout_s)

    def _live(self) -> None:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                self.load()
                self.report(event="ready")
                while not self.stopped:
                    self.step()
        except Aborted:
            pass
        except AsapError as error:
            self.report(event="failed", error=str(error), kind=type(error).__name__)
        except BaseException as error:  # a device must not die silently; the parent ends the run
            self.report(event="failed", error=f"{type(error).__name__}: {error}", kind="RuntimeError")
        finally:
            self.close()

    def load(self) -> None:
        raise NotImplementedError

    def step(self) -> None:
        """Do one piece of work, or wait a bounded time for some."""
        raise NotImplementedError

    def wake(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of segments and threads."""

    # -------------------------------------------------------------- account

    def record(
        self, kind: str, batch: int, layer: int, start_ns: int, end_ns: int, tokens: int, stream: str = "compute"
    ) -> None:
        self.spans.append((stream, kind, batch, layer, start_ns * 1e-9, end_ns * 1e-9, tokens))
        self.progress += 1
        if stream == "compute" and kind in ("attention", "moe"):
            self.busy_ns += end_ns - start_ns

    def take_spans(self, most: int = 4000) -> list[tuple]:
        taken: list[tuple] = []
        while self.spans and len(taken) < most:
            taken.append(self.spans.popleft())
        return taken


def open_segments(paths: tuple[str, ...]) -> list[Segment]:
    return [Segment.open(path) for path in paths]
