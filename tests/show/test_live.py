"""The live pipeline's Python side: what goes over the wire is what was put in."""

from __future__ import annotations

import time
import types
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from asaplab.show import live, live_controls

from asaplab.core import Instance, Run
from asaplab.scheduler import named


def bar(device="moe 0", stream="compute", kind="moe", batch=1, layer=2, start=0.5, end=0.75, tokens=9):
    return (device, stream, kind, batch, layer, start, end, tokens)


def run_of(*bars) -> Run:
    names = ("device", "stream", "kind", "batch", "layer", "start_s", "end_s", "tokens")
    spans = {name: np.array(column) for name, column in zip(names, zip(*bars))}
    return Run(system=named("asap"), instance=Instance(D=1, T=1, E=1), mode="paced", requests={}, spans=spans,
               utilization={}, excluded=0, configuration={}, provenance={})  # fmt: skip


@pytest.fixture
def shown(monkeypatch):
    """A pipeline whose messages to the browser are kept instead."""
    widget = live.LivePipeline()
    widget.sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers: widget.sent.append((content, buffers)))
    return widget


def decoded(buffers):
    return np.frombuffer(buffers[0]).reshape(-1, 2), np.frombuffer(buffers[1], np.int32).reshape(-1, 5)


def test_a_delta_holds_times_and_numbers_of_each_bar(shown):
    shown.add([bar(), bar(device="attention 0.0", kind="barrier_wait", start=1.0, end=3.0, batch=4, layer=5, tokens=6)])
    (content, buffers), = shown.sent  # fmt: skip
    times, what = decoded(buffers)
    assert content == {"n": 2}
    assert times.tolist() == [[0.5, 0.75], [1.0, 3.0]]
    kinds = live.KINDS
    assert what.tolist() == [[1, kinds.index("moe"), 1, 2, 9], [0, kinds.index("barrier_wait"), 4, 5, 6]]
    assert shown.rows == ["attention 0.0", "moe 0"]


def test_a_device_heard_of_later_moves_places_but_no_numbers(shown):
    shown.add([bar(device="moe 10")])
    shown.add([bar(device="moe 9"), bar(device="attention 1.0"), bar(device="moe 10", stream="send")])
    assert shown.rows == ["moe 10", "attention 1.0", "moe 9", "moe 10 · send"]
    assert [shown.rows[shown.places.index(place)] for place in range(4)] == [
        "attention 1.0",
        "moe 9",
        "moe 10",
        "moe 10 · send",
    ]
    assert decoded(shown.sent[1][1])[1][:, 0].tolist() == [2, 1, 3]


def test_nothing_new_sends_nothing(shown):
    shown.add([])
    assert shown.sent == []


def test_a_finished_run_is_there_before_the_page_opens(shown):
    shown.show(run_of(bar(), bar(device="moe 1")), window_s=0.1, speed=0.05)
    assert len(shown.bars) == 2 * 36
    assert (shown.window_s, shown.speed, shown.title) == (0.1, 0.05, "asap (paced)")


def test_without_anybody_watching_the_same_call_gives_a_still_figure():
    figure = live.pipeline(run_of(bar(), bar(start=0.8, end=0.9)), live=False, window_s=0.5)
    assert type(figure).__module__.startswith("plotly")
    assert isinstance(live.pipeline(run_of(bar()), live=True, window_s=0.5), live.LivePipeline)


def test_watching_feeds_at_most_twenty_times_a_second_and_loses_nothing(shown):
    instance = types.SimpleNamespace(inbox=types.SimpleNamespace(listeners=[]))
    with live.watching(instance, shown):
        (hear,) = instance.inbox.listeners
        for i in range(100):
            hear({"device": "moe 0", "spans": [("compute", "moe", i, 0, float(i), i + 0.5, 1)]})
            time.sleep(0.004)
    assert instance.inbox.listeners == []
    batches = np.concatenate([decoded(buffers)[1][:, 2] for _, buffers in shown.sent])
    assert batches.tolist() == list(range(100))
    assert len(shown.sent) <= 0.004 * 100 * 3 * live.MOST_HZ + 2


def test_switches_change_one_field_each_and_leave_barriers_alone():
    asap = named("asap")
    assert live_controls.adjusted(asap) == asap
    assert live_controls.adjusted(asap, interleaving=False).pipeline.in_flight == 1
    assert live_controls.adjusted(asap, overlap=False).pipeline.overlap == frozenset()
    assert not live_controls.adjusted(asap, super_kernel=False).pipeline.layer_oblivious
    assert live_controls.adjusted(named("default"), interleaving=False, overlap=False) == named("default")


def test_a_refusal_is_shown_beside_the_control():
    def refuse(system, rps):
        from asaplab.errors import InputError

        raise InputError("rps is 0; the request rate must be above 0")

    panel = live_controls.controls(refuse, lambda run: "", systems=["default", "asap"], named=named)
    assert "must be above 0" in panel.children[-1].value
