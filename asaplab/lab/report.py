"""The report of a batch: one HTML file that needs no network, and claims.json beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from asaplab.lab.campaign import Outcome
from asaplab.lab.tables import table_html, table_text, text

_TEMPLATE = Path(__file__).with_name("report.html.j2")
CLAIM_COLUMNS = ("id", "kind", "role", "published", "predicted", "ci95", "deviation", "basis", "note")


def write(out: Path, outcomes: Sequence[Outcome], claims: Sequence[Mapping[str, Any]]) -> tuple[Path, Path]:
    """Write ``report.html`` and ``claims.json`` into ``out`` from the records that the notebooks left there.

    ``claims`` are rows of the ledger; answers found by notebooks fill the rows that the ledger leaves open.
    """
    from plotly.offline import get_plotlyjs

    records = {outcome.name: _record(outcome) for outcome in outcomes}
    answered = answer(claims, [record for record in records.values() if record])
    page = jinja2.Environment(autoescape=True).from_string(_TEMPLATE.read_text())
    out.mkdir(parents=True, exist_ok=True)
    (out / "claims.json").write_text(json.dumps({"claims": answered}, indent=1))
    (out / "report.html").write_text(
        page.render(
            plotly=get_plotlyjs(),
            notebooks=[(outcome, records[outcome.name]) for outcome in outcomes],
            claims=table_html([_row(claim) for claim in answered], "") if answered else "",
            table=table_html,
            text=text,
            figure=lambda outcome, entry: _figure_json(Path(outcome.folder) / entry["file"]),
            provenance=next((record["provenance"] for record in records.values() if record), {}),
        )
    )
    return out / "report.html", out / "claims.json"


def answer(claims: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ledger's rows, with what the notebooks found where the ledger has no prediction of its own.

    Anchors stay "input": what goes into a profile proves nothing. The ledger's own predictions stay too, as they come
    from more seeds. Rows that nobody answered say so.
    """
    found = {claim: given for record in records for claim, given in record["answers"].items()}
    rows = []
    for claim in claims:
        row = dict(claim)
        if row.get("predicted") is None and row["id"] in found:
            given = found[row["id"]]
            row |= {"predicted": given["value"], "basis": given["basis"], "note": given["note"]}
            row["deviation"] = _deviation(row)
        if row.get("predicted") is None:
            row |= {"predicted": "not answered yet", "basis": None}
        rows.append(row)
    return rows


def _deviation(row: Mapping[str, Any]) -> float | None:
    """Relative to what was published; shares deviate in points."""
    published, found = row.get("published"), row["predicted"]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (published, found))
    if not numbers or not published:
        return None
    return found - published if row.get("unit") == "share" else found / published - 1


def summary(outcomes: Sequence[Outcome]) -> str:
    """What a terminal shows at the end: one line a notebook, then the tables named ``summary``."""
    lines = []
    for outcome in outcomes:
        where = f" at cell {outcome.cell}: {outcome.error}" if outcome.status == "failed" else ""
        lines.append(f"{outcome.status:>6}  {outcome.seconds:7.1f} s  {outcome.name}{where}")
    for outcome in outcomes:
        table = (_record(outcome) or {"tables": {}})["tables"].get("summary")
        if table:
            lines += ["", table["caption"], table_text(table["rows"])]
    return "\n".join(lines)


def _row(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {column: claim.get(column) for column in CLAIM_COLUMNS}


def _record(outcome: Outcome) -> dict[str, Any] | None:
    try:
        return json.loads((Path(outcome.folder) / "record.json").read_text())
    except (OSError, ValueError):
        return None


def _figure_json(path: Path) -> str:
    return path.read_text().replace("</", "<\\/")  # a closing tag inside a script would end it
