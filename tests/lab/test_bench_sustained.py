"""Where a TTFT crosses the SLO, found from few runs of a curve that is known."""

import pytest

from asaplab.lab.sustained import Interval, Seen, best_guess, crossing, neighbourhood, steepness


def queue(capacity: float, alone_s: float = 0.1):
    """The mean time in an M/D/1-like queue, which a run of finite length bounds."""

    def ttft_s(rps: float) -> float:
        load = min(rps / capacity, 0.999)
        return alone_s * (1 + load / (2 * (1 - load)))

    return ttft_s


@pytest.mark.parametrize("start", [0.5, 8.0, 300.0])
@pytest.mark.parametrize("capacity", [5.0, 40.0])
def test_the_rate_is_found_from_far_away(start, capacity):
    ttft_s, slo_s = queue(capacity), 1.0
    true = capacity * 18 / 19  # load / (2 (1 - load)) = 9
    runs = neighbourhood(ttft_s, slo_s, start=start, most=12)
    assert best_guess(runs, slo_s) == pytest.approx(true, rel=0.08)


def test_a_long_run_near_the_slo_is_moved_onto_it():
    power = lambda rps: 2.0 * (rps / 10) ** 5  # noqa: E731
    runs = [Seen(rps, power(rps)) for rps in (8.0, 9.0, 10.0)]
    assert steepness(runs, 1.0) == pytest.approx(5.0)
    true = 10 * 0.5 ** (1 / 5)
    assert crossing(runs[2], 1.0, 5.0) == pytest.approx(true)
    assert best_guess(runs, 1.0) == pytest.approx(true)


def test_steepness_ignores_runs_far_from_the_slo_and_stays_in_its_bounds():
    assert steepness([Seen(1.0, 0.1), Seen(2.0, 50.0)], 1.0) == 6.0  # neither is near
    assert steepness([Seen(1.0, 0.9), Seen(1.1, 0.8)], 1.0) == 2.0  # noise that falls
    assert steepness([Seen(1.0, 0.5), Seen(1.03, 2.5)], 1.0) == 12.0


def test_a_step_is_at_most_a_factor_of_two():
    assert crossing(Seen(8.0, 1e6), 1.0, 2.0) == pytest.approx(4.0)
    assert crossing(Seen(8.0, 1e-6), 1.0, 2.0) == pytest.approx(16.0)


def test_intervals_are_students():
    found = Interval.of([1.0, 2.0, 3.0]).plain()
    assert found["value"] == 2.0
    assert found["ci95"] == pytest.approx([2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5])
    assert Interval.of([5.0]).plain() == {"value": 5.0, "ci95": None}


def test_intervals_of_ratios_are_geometric_and_stay_positive():
    found = Interval.of_ratios([0.1, 10.0]).plain()
    assert found["value"] == pytest.approx(1.0)
    low, high = found["ci95"]
    assert 0 < low < 0.1
    assert low * high == pytest.approx(1.0)
    assert Interval.of_ratios([2.0]).plain() == {"value": pytest.approx(2.0), "ci95": None}
