"""The ledger: complete against the paper's statements, anchors apart from predictions, deviations as defined."""

from pathlib import Path

import pytest
import yaml

from asaplab.lab import claims as ledger
from asaplab.lab.claims import claims, deviation
from asaplab.lab.claims_checks import CHECKS, ROWS
from asaplab.lab.claims_fit import fitted_section
from asaplab.lab.claims_page import page
from asaplab.lab.claims_rows import CLAIMS, Claim
from asaplab.lab.claims_runs import Evidence, Predicted
from asaplab.profiles.fitted import fit_of
from asaplab.profiles.named import profile_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT.parent / "shared" / "paper" / "claims.yaml"


def claim(**fields):
    return Claim(id="x", section="0", kind="published", **fields)


@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's statements are not beside this checkout")
def test_every_statement_that_the_twin_can_answer_is_in_the_ledger_with_the_papers_number():
    ours = {row.id: row for row in CLAIMS}
    for row in yaml.safe_load(SOURCE.read_text()):
        if row["level"] == "engine" or row["kind"] == "open":
            continue
        mine = ours[row["id"]]
        assert (mine.kind, mine.role) == (row["kind"], row.get("role", "prediction"))
        value = row.get("value")
        value = float(value) if isinstance(value, str) else value  # YAML 1.1 reads 4.0e11 as text
        assert mine.published == (tuple(value) if isinstance(value, list) else value), row["id"]


def test_every_prediction_is_checked_and_no_anchor_is():
    assert set(CHECKS) == {row.id for row in CLAIMS if row.role == "prediction"}
    assert set(ROWS) <= {row.id for row in CLAIMS}


@pytest.mark.parametrize(
    ("fields", "value", "expected"),
    [
        ({"published": 20.0, "unit": "rps"}, 15.0, -0.25),
        ({"published": 0.5, "unit": "share"}, 0.6, 0.1),
        ({"published": 1.0, "unit": "s", "sense": "at-most"}, 0.5, 0.0),
        ({"published": 1.0, "unit": "s", "sense": "at-most"}, 1.5, 0.5),
        ({"published": 1.0, "unit": "s", "sense": "at-least"}, 0.5, -0.5),
        ({"published": (0.1, 0.2), "unit": "share"}, 0.15, 0.0),
        ({"published": (0.1, 0.2), "unit": "share"}, 0.25, 0.05),
        ({}, True, None),
    ],
)
def test_deviation_is_relative_or_in_points_and_zero_where_a_bound_holds(fields, value, expected):
    assert deviation(claim(**fields), Predicted(value=value)) == (None if expected is None else pytest.approx(expected))


def test_the_indexers_law_holds_in_measured_rows():
    found = CHECKS["dsa-indexer-quadratic"](None)
    assert (found.value, found.basis) == (True, "measured")


def test_the_page_tells_every_fitted_value_and_what_no_setting_meets():
    fit = fit_of()
    rows = {row.id: {"unit": row.unit, "published": row.published} for row in CLAIMS}
    text = fitted_section(fit, rows)
    assert all(f"| {name} |" in text for name in (*fit["values"], *fit["figures"]))
    assert all(f"{name} (closest" in text for name in fit["feasibility"]["never"])
    apart = sorted(fit["feasibility"]["apart"], key=lambda some: -some["closest"])
    assert all(" with ".join(some["figures"]) in text for some in apart[:8])
    assert f"{len(fit['feasibility']['most']['met'])} of {len(fit['figures'])} figures hold" in text


@pytest.mark.parametrize("name", ["cloudmatrix384", "cloudmatrix384-fitted"])
def test_rows_that_rest_on_a_fitted_profile_say_so(name, monkeypatch):
    found = Evidence(slo={}, slo_p99={}, facts={}, rooflines={}, profile=profile_of(name))
    monkeypatch.setattr(ledger, "evidence", lambda **_: found)
    cheap = {"dispatch-512", "dsa-indexer-quadratic", "eaas-512"}
    monkeypatch.setattr(ledger, "CLAIMS", [row for row in CLAIMS if row.id in cheap])
    rows = {row["id"]: row["fitted"] for row in ledger.claims(profile=name)["claims"]}
    assert rows == {"dispatch-512": name.endswith("fitted"), "dsa-indexer-quadratic": False, "eaas-512": False}


@pytest.mark.slow
def test_the_ledger_predicts_every_row_and_its_page_holds_them():
    found = claims(repeats=2)
    assert [row["id"] for row in found["claims"]] == [row.id for row in CLAIMS]
    for row in found["claims"]:
        if row["role"] == "anchor":
            assert (row["predicted"], row["deviation"]) == ("input", None)
        elif row["kind"] != "open":
            assert row["predicted"] is not None, row["id"]
        assert row["fitted"] is False
        if isinstance(row["deviation"], float) and abs(row["deviation"]) > 0.15:
            assert row["id"] in ROWS, "a deviation of more than 15% needs a sentence"
    text = page(found)
    assert all(f"**{row.id}**" in text for row in CLAIMS)
