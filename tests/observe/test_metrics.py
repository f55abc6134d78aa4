import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asaplab.core import TTFT_PARTS, Instance
from asaplab.errors import InputError
from asaplab.observe import PAPER_PARTS, SpanLog, concat, decompose, dp_imbalance, loads, metrics, moe_imbalance
from asaplab.scheduler import named
from tests.observe.runs import known_run


def test_the_numbers_of_a_known_run():
    m = metrics(known_run())
    assert (m["requests"], m["completed"], m["excluded"]) == (4, 3, 3)
    assert m["mean_ttft_s"] == pytest.approx((0.25 + 0.4 + 0.6) / 3)
    assert m["p50_ttft_s"] == pytest.approx(0.4)
    assert m["p90_ttft_s"] == pytest.approx(0.4 + 0.8 * 0.2)
    assert m["p99_ttft_s"] == pytest.approx(0.4 + 0.98 * 0.2)
    assert m["duration_s"] == pytest.approx(0.8)
    assert m["tokens_per_s"] == pytest.approx(1624 / 0.8)
    assert m["requests_per_s"] == pytest.approx(3 / 0.8)
    assert sum(m["ttft_parts"].values()) == pytest.approx(m["mean_ttft_s"])
    assert m["dp_imbalance"] == pytest.approx((0.3 - 0.2) / 0.3)
    assert m["moe_imbalance"] == pytest.approx(0.5)
    assert m["utilization"] == {"attention": 0.5, "moe": 0.25}


def test_the_duration_counts_from_the_first_arrival():
    run = known_run()
    later = known_run(requests={**run.requests, "arrival_s": run.requests["arrival_s"] + 1000})
    assert metrics(later)["duration_s"] == pytest.approx(0.8)
    assert metrics(later)["tokens_per_s"] == pytest.approx(1624 / 0.8)


def test_a_run_that_completed_nothing_has_no_ttft():
    run = known_run()
    lost = {**run.requests, "ttft_s": np.full(4, np.nan)}
    m = metrics(known_run(requests=lost, spans={}))
    assert m["completed"] == 0
    assert m["mean_ttft_s"] is None
    assert m["p99_ttft_s"] is None
    assert m["tokens_per_s"] == 0
    assert m["dp_imbalance"] is None
    assert m["moe_imbalance"] is None


def test_imbalance_of_given_loads():
    assert dp_imbalance([1, 1, 1, 1]) == 0
    assert dp_imbalance([4, 0, 0, 0]) == 0.75
    assert moe_imbalance([0, 0]) == 0
    assert dp_imbalance([357913941.68401015] * 3) == 0  # whose mean rounds above them
    assert moe_imbalance([[4, 0], [1, 1], [0, 0]]) == pytest.approx(0.25)


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=40))
def test_imbalance_is_a_share_and_does_not_depend_on_order_or_unit(load):
    value = dp_imbalance(load)
    assert 0 <= value <= 1 - 1 / len(load) + 1e-9
    assert dp_imbalance(load[::-1]) == pytest.approx(value, abs=1e-9)


def test_loads_sum_the_spans_of_each_device():
    assert loads(known_run(), "attention") == pytest.approx({"attention 0.0": 0.3, "attention 1.0": 0.1})
    assert loads(known_run(), "barrier_wait") == {}


def test_colocated_devices_count_for_both_stages():
    logs = [SpanLog(f"colocated {group}.{rank}") for group in (0, 1) for rank in (0, 1)]
    for log, attention_s, moe_s in zip(logs, (3.0, 3.0, 1.0, 1.0), (4.0, 0.5, 0.5, 3.0)):
        log.append("attention", 0, 0, 0.0, attention_s, 9)
        log.append("moe", 0, 0, 5.0, 5.0 + moe_s, 9)
    run = known_run(named("default"), instance=Instance(D=2, T=2, E=4), spans=concat(logs))
    assert dp_imbalance(run) == pytest.approx((3 - 2) / 3)
    assert moe_imbalance(run) == pytest.approx((4 - 2) / 4)


def test_a_device_without_a_span_counts_as_idle():
    assert moe_imbalance(known_run(instance=Instance(D=2, T=1, E=4))) == pytest.approx(0.75)
    assert dp_imbalance(known_run(instance=Instance(D=3, T=1, E=2))) == pytest.approx((0.3 - 0.4 / 3) / 0.3)


def test_decomposition_by_length_against_a_plain_loop():
    run = known_run()
    table = decompose(run)
    assert table["up_to"].tolist() == [512, 1024]
    assert table["requests"].tolist() == [2, 1]
    for row, members in enumerate(([0, 1], [2])):
        assert table["ttft_s"][row] == pytest.approx(np.mean([run.requests["ttft_s"][i] for i in members]))
        for part in TTFT_PARTS:
            assert table[part][row] == pytest.approx(np.mean([run.requests[part][i] for i in members]))
        assert sum(table[name][row] for name in PAPER_PARTS) == pytest.approx(table["ttft_s"][row])


def test_the_papers_parts_hold_each_of_ours_once():
    assert sorted(part for ours in PAPER_PARTS.values() for part in ours) == sorted(TTFT_PARTS)


def test_prompts_beyond_the_last_bin_have_a_range_of_their_own():
    table = decompose(known_run(), [100])
    assert table["up_to"].tolist() == [100, np.inf]
    assert table["above"].tolist() == [0, 100]
    assert table["requests"].tolist() == [1, 2]


@pytest.mark.parametrize("bins", [[], [2, 1], [5, 5]])
def test_bins_must_ascend(bins):
    with pytest.raises(InputError, match="ascending"):
        decompose(known_run(), bins)
