"""The search behind the fitted profile, on figures that cost nothing; bounds, leave-one-out and feasibility."""

import numpy as np
import pytest

from asaplab.lab import fit as study
from asaplab.lab.claims_rows import CLAIMS
from asaplab.profiles.cloudmatrix import cloudmatrix384, square_efficiency
from asaplab.profiles.fitted import cloudmatrix384_fitted, fit_of, fitted
from asaplab.profiles.named import profile_of

PUBLISHED = {claim.id: claim.published for claim in CLAIMS}
BEST = {"token_efficiency": 0.4, "hbm_efficiency": 0.7}  # where the made-up figures are met


def made_up(values, *, seed=0):
    """Every figure is met at BEST, except one that no setting meets and one that contradicts slo-asap."""
    off = sum(abs(np.log(values[name] / best)) for name, best in BEST.items())
    figures = {}
    for name in study.FIGURES:
        published = PUBLISHED[name]
        middle = float(np.mean(published)) if isinstance(published, tuple) else published
        figures[name] = middle * (1 + off)
    figures["slo-default"] = 3 * PUBLISHED["slo-default"]
    figures["slo-chunked"] = PUBLISHED["slo-chunked"] * (1.4 - off)
    return figures


@pytest.fixture
def cheap(monkeypatch):
    monkeypatch.setattr(study, "predict", made_up)


def test_the_search_finds_a_setting_that_meets_its_goal(cheap):
    goal = study.Goal(figures=("slo-asap", "ttft-rps1-asap"))
    found = study.search(study.ASSUMPTIONS, [goal], first=24, rounds=8, workers=1)
    off = [list(study.deviations(figures).values()) for _, figures in found]
    values = found[int(goal.of(np.array(off)).argmin())][0]
    assert values["token_efficiency"] == pytest.approx(0.4, rel=0.1)
    assert values["hbm_efficiency"] == pytest.approx(0.7, rel=0.1)
    assert all(study.physical(at) for at, _ in found)


def test_what_is_out_of_reach_alone_and_in_pairs_is_told(cheap):
    found = study.fit(first=24, rounds=3, workers=1)
    assert found["parameters"] == len(study.ASSUMPTIONS)
    assert found["rms"] <= found["rms_assumed"]
    feasible = found["feasibility"]
    assert feasible["never"] == ["slo-default"]
    assert feasible["closest"]["slo-default"] == pytest.approx(2.0)
    assert {"slo-asap", "slo-chunked"} in [set(pair["figures"]) for pair in feasible["apart"]]
    assert feasible["settings"] > found["settings"]


def test_a_left_out_figure_is_judged_where_the_others_are_met_best(cheap):
    found = study.fit(first=24, rounds=3, workers=1)
    # without slo-chunked nothing holds the others back; there it is as far off as it can be
    chunked = found["figures"]["slo-chunked"]
    assert abs(chunked["left_out"]) > abs(chunked["deviation"])


@pytest.mark.parametrize("worst", [True, False])
def test_a_goal_is_the_worst_or_the_mean_square_deviation(worst):
    goal = study.Goal(figures=study.FIGURES[1:3], worst=worst)
    off = np.zeros((2, len(study.FIGURES)))
    off[0, :4] = 9.0, -0.4, 0.2, 9.0
    np.testing.assert_allclose(goal.of(off), [0.4 if worst else 0.1, 0.0])


def test_predictions_come_from_the_ledgers_own_simulations():
    values = {name: cloudmatrix384().quantities()[name].value for name in study.ASSUMPTIONS}
    fast = study.predict(values | {"longest_wait_s": 0.001})
    slow = study.predict(values | {"longest_wait_s": 0.2})
    assert slow["ttft-rps1-asap"] > fast["ttft-rps1-asap"] + 0.1
    assert slow["ttft-rps1-default"] == fast["ttft-rps1-default"]


def test_the_stored_fit_is_physical_and_marked():
    stored, profile = fit_of(), cloudmatrix384_fitted()
    assert set(stored["values"]) == set(study.ASSUMPTIONS) == set(stored["bounds"])
    for name, value in stored["values"].items():
        low, high = stored["bounds"][name]
        assert low <= value <= high
        quantity = profile.quantities()[name]
        assert quantity.basis == "fitted"
        assert quantity.value == pytest.approx(value)
    assert square_efficiency(profile.token_efficiency.value, profile.attention_fixed_s.value) <= 1
    assert profile.fitted
    assert not profile_of("cloudmatrix384").fitted
    assert set(stored["figures"]) == set(study.FIGURES)
    assert all({"deviation", "left_out"} <= set(figure) for figure in stored["figures"].values())
    assert stored["rms"] <= stored["rms_assumed"]


def test_only_what_was_fitted_is_marked_fitted():
    quantities = fitted({"latency_s": 5e-6}).quantities()
    assert [name for name, quantity in quantities.items() if quantity.basis == "fitted"] == ["latency_s"]
    assert "1e-05 in cloudmatrix384" in quantities["latency_s"].source
