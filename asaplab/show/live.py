"""The live pipeline: bars of what every device does, while it does it (Figure 1), on a canvas in the notebook.

New bars travel as binary deltas at most 20 times a second. Bars of a finished run can be played in slow motion: the
browser then runs the clock alone. Without a kernel the same output shows a still plotly figure.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets

from asaplab.core import TTFT_PARTS, Run
from asaplab.observe.spans import natural, spans_of
from asaplab.show.pipeline import gantt
from asaplab.show.style import PART_COLOURS, SERIES
from asaplab.show.window import busy_window

KINDS = (*TTFT_PARTS, "idle")
_CODE = {kind: i for i, kind in enumerate(KINDS)}
MOST_HZ = 20
MOST_BARS = 65_536  # what the browser keeps; older bars fall out
_STILL_BARS = 1500  # in the figure that stands in where no kernel runs

# colours of batches; what waits is red or yellow, so batches are not
_BATCHES = [colour for colour in SERIES if colour not in ("#d9434f", "#f2a33a")]

# (device, stream, kind, batch, layer, start_s, end_s, tokens): the order of asaplab.core.Span
Bar = tuple[str, str, str, int, int, float, float, int]


class LivePipeline(anywidget.AnyWidget):
    """A pipeline on a canvas. ``add`` takes bars from any thread; rows appear as devices are first heard of."""

    _esm = Path(__file__).with_name("live.js")
    _css = Path(__file__).with_name("live.css")
    title = traitlets.Unicode("").tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    places = traitlets.List(traitlets.Int()).tag(sync=True)  # of each row, counted from the top
    kinds = traitlets.List(list(KINDS)).tag(sync=True)
    colours = traitlets.List([PART_COLOURS[kind] for kind in KINDS]).tag(sync=True)
    series = traitlets.List(_BATCHES).tag(sync=True)
    bars = traitlets.Bytes(b"").tag(sync=True)  # what is there before the first delta
    window_s = traitlets.Float(5.0).tag(sync=True)
    speed = traitlets.Float(0.0).tag(
        sync=True
    )  # seconds of the run for one second on the screen; 0 follows the newest bar
    row_px = traitlets.Int(26).tag(sync=True)
    paused = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._row_of: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()
        self._run: Run | None = None
        self.on_msg(self._said)
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def show(self, run: Run, *, window_s: float | None = None, speed: float = 0.0) -> LivePipeline:
        """Replace what is shown by the spans of a run; with ``speed`` below 1 it plays in slow motion."""
        spans = spans_of(run)
        tracks = sorted(set(zip(spans["device"].tolist(), spans["stream"].tolist())), key=natural)
        with self._lock:
            self._row_of = {track: i for i, track in enumerate(tracks)}
            newest = slice(-MOST_BARS, None)
            times, what = self._arrays(spans, newest)
            self._kept, self._run = [(times, what)], run
            self._name_rows()
            self.title = f"{run.system.name} ({run.mode})"
            if window_s is not None:
                self.window_s = window_s
            self.speed = speed
            self.bars = times.tobytes() + what.tobytes()
        return self

    def add(self, bars: Iterable[Bar]) -> None:
        """Send new bars to the browser, all of them at once."""
        columns = list(zip(*bars))
        if not columns:
            return
        names = ("device", "stream", "kind", "batch", "layer", "start_s", "end_s", "tokens")
        spans = {name: np.asarray(column) for name, column in zip(names, columns)}
        with self._lock:
            known = len(self._row_of)
            for track in sorted(set(zip(columns[0], columns[1])) - self._row_of.keys(), key=natural):
                self._row_of[track] = len(self._row_of)
            if len(self._row_of) != known:
                self._name_rows()
            times, what = self._arrays(spans, slice(None))
            self._kept.append((times, what))
            while sum(len(t) for t, _ in self._kept[1:]) > MOST_BARS:
                self._kept.pop(0)
        self.send({"n": len(times)}, [times.tobytes(), what.tobytes()])

    def _name_rows(self) -> None:
        """Bars that were sent keep the number of their row, so a device that is heard of later only moves places."""
        ranks = {track: place for place, track in enumerate(sorted(self._row_of, key=natural))}
        self.places = [ranks[track] for track in self._row_of]
        self.rows = [_label(track) for track in self._row_of]
        self.row_px = 26 if len(self.rows) <= 12 else 20 if len(self.rows) <= 24 else 13

    def _arrays(self, spans: Any, chosen: slice) -> tuple[np.ndarray, np.ndarray]:
        devices, streams = spans["device"][chosen].tolist(), spans["stream"][chosen].tolist()
        rows = np.array([self._row_of[track] for track in zip(devices, streams)], np.int32)
        kinds = np.array([_CODE[kind] for kind in spans["kind"][chosen].tolist()], np.int32)
        numbers = [np.asarray(spans[name][chosen], np.int32) for name in ("batch", "layer", "tokens")]
        times = np.stack([spans["start_s"][chosen], spans["end_s"][chosen]], axis=1).astype(np.float64)
        return times, np.stack([rows, kinds, *numbers], axis=1)

    def _said(self, _: Any, message: Any, buffers: Any) -> None:
        """A page was opened again: give it what the others have."""
        if message.get("hello") and self._kept and not self.bars:
            times, what = (np.concatenate(column) for column in zip(*self._kept))
            self.send({"n": len(times), "clear": True}, [times.tobytes(), what.tobytes()])

    def _repr_mimebundle_(self, **settings: Any) -> Any:
        made = super()._repr_mimebundle_(**settings)
        if made is None or self._run is None:
            return made
        bundle = made[0] if isinstance(made, tuple) else made
        bundle["application/vnd.plotly.v1+json"] = gantt(
            self._run, busy_window(self._run, _STILL_BARS)
        ).to_plotly_json()
        return made


def _label(track: tuple[str, str]) -> str:
    return track[0] if track[1] == "compute" else f"{track[0]} · {track[1]}"


def pipeline(run: Run, *, live: bool, window_s: float, speed: float = 0.02) -> Any:
    """A run in slow motion where somebody can watch (``live``), else its still figure over the same window."""
    if live:
        return LivePipeline().show(run, window_s=window_s, speed=speed)
    start, _ = busy_window(run)
    return gantt(run, (start, start + window_s))


@contextlib.contextmanager
def watching(instance: Any, shown: LivePipeline) -> Iterator[LivePipeline]:
    """Feed a pipeline from a running instance's telemetry for the length of a ``with`` block."""
    waiting: list[Bar] = []
    lock, stop = threading.Lock(), threading.Event()

    def hear(message: dict[str, Any]) -> None:
        with lock:
            waiting.extend((message["device"], *span) for span in message["spans"])

    def feed() -> None:
        while not stop.wait(1 / MOST_HZ):
            with lock:
                bars, waiting[:] = list(waiting), []
            shown.add(bars)

    thread = threading.Thread(target=feed, name="asap-live", daemon=True)
    instance.inbox.listeners.append(hear)
    thread.start()
    try:
        yield shown
    finally:
        instance.inbox.listeners.remove(hear)
        stop.set()
        thread.join(timeout=2.0)
        with lock:
            shown.add(waiting)
