"""The ledger: every statement of the paper that the twin answers, beside what the twin predicts.

Nothing is fitted to an answer: the profile holds anchors and assumptions, and the end-to-end rows come out. With the
profile ``cloudmatrix384-fitted`` every row that rests on it says so.
"""

from __future__ import annotations

from typing import Any

from asaplab.lab.claims_checks import CHECKS, ROWS
from asaplab.lab.claims_rows import CLAIMS, Claim
from asaplab.lab.claims_runs import Evidence, Predicted, evidence
from asaplab.profiles.fitted import fit_of

MOVES = 0.15  # a deviation beyond this share gets a sentence
_SHARES = ("share",)
_PRICED = ("simulated", "assumed")  # what rests on the profile


def claims(
    *, profile: str = "cloudmatrix384", seed: int = 0, repeats: int = 3, workers: int | None = None
) -> dict[str, Any]:
    """The ledger as plain values: {"claims": [{"id", "kind", "role", "published", "predicted", "ci95", ...}]}.

    Anchors went into the profile and say "input". A prediction has its 95% interval over ``repeats`` seeds where it
    comes from simulated traffic, and its ``deviation``: relative to the published number, or in points for shares.
    ``basis`` says what it rests on; ``note`` what moves it most where it deviates by more than 15%. Beside the rows,
    ``fit`` is the stored search behind the fitted profile: how close any setting comes, and what none can meet.
    """
    found = evidence(profile=profile, seed=seed, repeats=repeats, workers=workers)
    rows = [_row(claim, found) for claim in CLAIMS]
    return {"claims": rows, "seeds": repeats, "profile": profile, "fit": fit_of()}


def _row(claim: Claim, found: Evidence) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": claim.id,
        "kind": claim.kind,
        "role": claim.role,
        "section": claim.section,
        "published": list(claim.published) if isinstance(claim.published, tuple) else claim.published,
        "unit": claim.unit,
        "sense": claim.sense,
        "predicted": "input",
        "ci95": None,
        "fitted": False,
        "deviation": None,
        "basis": "assumed" if claim.role == "anchor" else "simulated",
        "note": claim.text,
    }
    if claim.role == "anchor":
        row["basis"] = "published"
        row["note"] = f"{claim.text}; {ROWS[claim.id]}" if claim.id in ROWS else claim.text
        return row
    predicted = CHECKS[claim.id](found)
    row["predicted"], row["basis"] = predicted.value, predicted.basis
    row["ci95"] = None if predicted.ci95 is None else list(predicted.ci95)
    row["fitted"] = found.profile.fitted and predicted.basis in _PRICED
    row["deviation"] = deviation(claim, predicted)
    parts = [claim.text, predicted.note]
    if row["deviation"] is not None and abs(row["deviation"]) > MOVES and claim.id in ROWS:
        parts.append(ROWS[claim.id])
    row["note"] = "; ".join(part for part in parts if part)
    return row


def deviation(claim: Claim, predicted: Predicted) -> float | None:
    """How far a number is from the published one: a share of it, or points for shares; 0 where a bound holds."""
    value, published = predicted.value, claim.published
    if isinstance(value, bool) or value is None or published is None:
        return None
    low, high = published if isinstance(published, tuple) else (published, published)
    holds = {
        "about": low <= value <= high,
        "at-most": value <= high,
        "up-to": value <= high,
        "at-least": value >= low,
    }[claim.sense]
    if holds:
        return 0.0
    nearest = low if value < low else high
    return value - nearest if claim.unit in _SHARES else value / nearest - 1.0
