"""The figures say what the run says: their data is compared with numbers taken from the run by other means."""

from dataclasses import replace

import numpy as np
import pytest

from asaplab import show
from asaplab.core import TTFT_PARTS, Instance
from asaplab.errors import InputError
from asaplab.observe import SpanLog, concat
from asaplab.scheduler import named
from asaplab.show.parts import _STACK
from asaplab.show.style import PART_COLOURS, PART_NAMES, system_colours
from tests.observe.runs import known_run

RUN = known_run()


def names(figure):
    return [trace.name for trace in figure.data]


def test_ttft_by_length_shows_every_completed_request_and_the_means():
    figure = show.ttft_by_length({"asap": RUN, "default": RUN})
    points, means = figure.data[0], figure.data[1]
    assert np.asarray(points.x).tolist() == [100, 500, 1024]
    np.testing.assert_allclose(points.y, [0.25, 0.4, 0.6])
    np.testing.assert_allclose(means.y, [0.25, 0.4, 0.6])
    assert np.all((np.asarray(means.x) <= [128, 512, 1024]) & (np.asarray(means.x) > [64, 256, 512]))
    assert figure.data[1].line.color != figure.data[3].line.color
    assert points.marker.color == means.line.color


def test_parts_stack_up_to_the_mean_ttft():
    figure = show.ttft_parts({"asap": RUN, "default": RUN})
    for axis in ("x", "x2"):
        bars = [trace for trace in figure.data if trace.xaxis == axis]
        np.testing.assert_allclose(sum(np.asarray(bar.y) for bar in bars), [(0.25 + 0.4) / 2, 0.6])
        assert all(list(bar.x) == ["≤ 512", "≤ 1k"] for bar in bars)
    assert sum(trace.showlegend for trace in figure.data) == 3
    assert figure.layout.yaxis2.matches == "y"


def test_every_part_has_a_place_in_the_stack_a_name_and_a_colour_of_its_own():
    assert sorted(_STACK) == sorted(TTFT_PARTS)
    assert set(PART_COLOURS) == set(PART_NAMES) == {*TTFT_PARTS, "idle"}
    assert len(set(PART_COLOURS.values())) == len(PART_COLOURS)


def test_a_part_has_the_same_colour_in_every_figure():
    bars = {trace.name: trace.marker.color for trace in show.ttft_parts({"asap": RUN}).data}
    pipeline = {trace.name: trace.marker.color for trace in show.gantt(RUN).data}
    assert bars["MoE"] == pipeline["MoE"] == PART_COLOURS["moe"]
    assert bars["attention"] == pipeline["attention"]


def test_utilization_shows_each_role_of_each_run():
    figure = show.utilization({"asap": RUN, "other": replace(RUN, utilization={"colocated": 0.125})})
    assert list(figure.data[0].x) == ["attention", "moe"]
    assert list(figure.data[0].y) == [50, 25]
    assert list(figure.data[1].y) == [12.5]
    assert list(figure.data[1].text) == ["12%"]


def test_the_pipeline_has_a_bar_for_each_span_in_milliseconds():
    figure = show.gantt(RUN)
    bars = sorted(
        (y, round(float(base)), round(float(x)))
        for trace in figure.data
        for y, base, x in zip(trace.y, np.atleast_1d(trace.base), trace.x)
    )
    assert bars == [
        ("attention 0.0", 0, 300),
        ("attention 1.0", 100, 100),
        ("moe 0", 300, 100),
        ("moe 1 · send", 400, 100),
    ]
    assert list(figure.layout.yaxis.categoryarray) == ["moe 1 · send", "moe 0", "attention 1.0", "attention 0.0"]


def test_a_window_keeps_what_touches_it():
    figure = show.gantt(RUN, (0.15, 0.35))
    assert names(figure) == ["attention", "MoE"]
    assert list(figure.layout.xaxis.range) == pytest.approx([0, 200])


def test_batches_can_be_told_apart_by_colour():
    figure = show.gantt(RUN, colour="batch")
    assert names(figure) == ["batch 0", "batch 1"]
    assert figure.data[0].marker.color != figure.data[1].marker.color


def test_without_a_window_the_busiest_moment_is_shown():
    log = SpanLog("moe 0", capacity=30_000)
    for i in range(30_000):
        start_s = i if i < 20_000 else 20_000 + (i - 20_000) / 4
        log.append("moe", i, 0, start_s, start_s + 0.25, 1)
    figure = show.gantt(known_run(spans=concat([log])))
    assert 300 <= len(figure.data[0].x) <= 500
    assert figure.layout.xaxis.range[1] == pytest.approx(400 / 4 * 1e3)


def test_a_run_without_spans_says_so():
    figure = show.gantt(known_run(spans={}))
    assert "no spans" in figure.layout.annotations[0].text


def test_devices_are_sorted_by_number():
    logs = [SpanLog(f"moe {e}") for e in (10, 2)]
    for log in logs:
        log.append("moe", 0, 0, 0.0, 1.0, 1)
    run = known_run(spans=concat(logs), instance=Instance(D=2, T=1, E=11))
    assert list(show.gantt(run).layout.yaxis.categoryarray) == ["moe 10", "moe 2"]


def test_ttft_over_rps_sorts_the_points_and_draws_interval_and_slo():
    table = [
        {"system": "asap", "rps": 4, "mean_ttft_s": 2.0, "low_s": 1.5, "high_s": 3.0},
        {"system": "default", "rps": 1, "mean_ttft_s": 9.0},
        {"system": "asap", "rps": 1, "mean_ttft_s": 1.0, "low_s": 0.5, "high_s": 1.25},
    ]
    figure = show.ttft_over_rps(table, slo_s=5)
    assert names(figure) == ["asap", "default"]
    assert list(figure.data[0].x) == [1, 4]
    assert list(figure.data[0].error_y.array) == [0.25, 1.0]
    assert list(figure.data[0].error_y.arrayminus) == [0.5, 0.5]
    assert figure.data[1].error_y.array is None
    assert figure.layout.shapes[0].y0 == 5
    with pytest.raises(InputError, match="no 'rps'"):
        show.ttft_over_rps([{"system": "asap", "mean_ttft_s": 1.0}])


def test_systems_keep_their_colours_and_no_two_share_one():
    colours = system_colours(["megascale", "asap", "step3", "default", "chunked"])
    assert len(set(colours.values())) == 5
    assert colours["asap"] == system_colours(["default", "asap"])["asap"]


@pytest.mark.parametrize("make", [show.ttft_by_length, show.utilization, show.ttft_parts])
def test_nothing_to_show_is_an_empty_figure(make):
    assert len(make({}).data) == 0
    lost = known_run(
        named("default"), utilization={}, requests={**RUN.requests, "ttft_s": np.full(4, np.nan)}, spans={}
    )
    make({"default": lost})


FIGURES = {
    "ttft_by_length": lambda: show.ttft_by_length({"asap": RUN, "default": RUN}),
    "gantt": lambda: show.gantt(RUN),
    "utilization": lambda: show.utilization({"asap": RUN}),
    "ttft_parts": lambda: show.ttft_parts({"asap": RUN}),
    "ttft_over_rps": lambda: show.ttft_over_rps([{"system": "asap", "rps": 1, "mean_ttft_s": 1.0}], slo_s=2),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_look_suits_light_and_dark_pages_and_any_width(name):
    layout = FIGURES[name]().layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == "rgba(0, 0, 0, 0)"
    assert layout.width is None
    assert layout.autosize
    assert layout.font.size >= 13
    for ground in (0xFF, 0x11):
        assert _contrast(layout.font.color, ground) >= 3.5


def _contrast(ink: str, ground: int) -> float:
    def luminance(r, g, b):
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (r / 255, g / 255, b / 255)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    a = luminance(*(int(ink[i : i + 2], 16) for i in (1, 3, 5)))
    b = luminance(ground, ground, ground)
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)
