"""SLO throughput: the bisection, early refusal, rooflines and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asaplab import simulate, workload
from asaplab.core import Instance
from asaplab.errors import InputError
from asaplab.lab.interval import mean_ci95
from asaplab.lab.roofline import roofline_rps, typical_lengths
from asaplab.lab.slo import Goal, highest_rate, poisson_of, slo
from asaplab.profiles.named import profile_of
from asaplab.profiles.shapes import model_of
from asaplab.scheduler import named
from asaplab.twin import setting_of

SHORT = {"slo_s": 0.5, "duration_s": 30.0}


@given(st.floats(0.1, 100.0))
def test_bisection_finds_the_step_of_a_monotone_answer(edge):
    found = highest_rate(lambda rps: rps <= edge, 0.05, 200.0, 0.01)
    assert found <= edge <= found * 1.0101


def test_a_goal_that_not_even_the_lowest_rate_holds_gives_zero():
    assert highest_rate(lambda rps: False, 0.1, 10.0, 0.01) == 0.0


@pytest.mark.parametrize("metric", ["mean", "p99"])
@pytest.mark.parametrize("system", ["asap", "chunked"])
def test_stopping_early_never_changes_the_answer(system, metric):
    goal = Goal(metric=metric, **SHORT)
    setting = setting_of(named(system))
    for rps in (1.0, 6.0, 12.0, 40.0):
        traffic = poisson_of(setting, goal, 3)(rps)
        ttft_s = simulate(traffic, system).requests["ttft_s"]
        whole = ttft_s.mean() if metric == "mean" else np.percentile(ttft_s, 99)
        assert goal.holds(setting, traffic) == (whole <= goal.slo_s)


def test_the_rate_found_holds_and_a_higher_one_does_not():
    found = slo("default", repeats=1, **SHORT)
    rate = found["slo_rps"]
    assert found["ci95"] is None
    assert found["system"] == "default"
    means = []
    for rps in (rate, 1.02 * rate):
        run = simulate(workload.poisson(rps=rps, duration_s=30.0), "default")
        means.append(run.requests["ttft_s"].mean())
    assert means[0] <= 0.5 < means[1]


def test_a_short_run_is_refused_because_it_hides_overload():
    with pytest.raises(InputError, match="at least 300 s"):
        slo("asap", slo_s=5.0, duration_s=60.0)


@pytest.mark.parametrize("system", ["asap", "default"])
def test_no_schedule_beats_the_roofline(system):
    setting, lengths = setting_of(named(system)), typical_lengths()
    roofline, _ = roofline_rps(setting.system, setting.model, setting.profile, setting.instance, lengths)
    at_once = workload.poisson(rps=1000.0, requests=1500, seed=1)
    own, _ = roofline_rps(setting.system, setting.model, setting.profile, setting.instance, at_once)
    run = simulate(at_once, system)
    assert 1500 / (run.requests["ttft_s"] + at_once.arrival_s).max() <= own
    assert own == pytest.approx(roofline, rel=0.15)


def test_the_roofline_grows_with_its_narrow_role_only():
    lengths, model, profile = typical_lengths(), model_of("deepseek-v3.2"), profile_of("cloudmatrix384")
    rates = []
    for D, E in ((4, 16), (8, 16), (8, 32)):
        rates.append(roofline_rps(named("asap"), model, profile, Instance(D=D, T=4, E=E), lengths)[0])
    assert rates[0] == pytest.approx(rates[1])  # MoE devices limit
    assert rates[2] == pytest.approx(2 * rates[0], rel=0.01)


def test_interval_is_students():
    mean, ends = mean_ci95([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert ends is not None
    assert ends[1] - mean == pytest.approx(4.302653 / np.sqrt(3), rel=1e-5)
    assert mean_ci95([1.0]) == (1.0, None)
