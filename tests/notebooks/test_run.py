"""Every notebook runs at smoke scale in one batch, as ``asaplab reproduce --scale smoke`` runs them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from asaplab.lab import notebooks, report
from asaplab.lab.claims_lab import NOTEBOOK_CLAIMS, unanswered
from asaplab.lab.claims_rows import CLAIMS

SOURCE = Path(__file__).resolve().parents[3] / "shared" / "paper" / "claims.yaml"
EVERY = notebooks.numbered()
MOST_S = (
    150.0  # a notebook takes at most 60 s with two cores to itself; two run at once here, on a machine of unknown mood
)


def record_of(outcome):
    return json.loads((Path(outcome.folder) / "record.json").read_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_notebook_runs_and_leaves_its_results(batch, path):
    outcome = next(outcome for outcome in batch if outcome.name == path.stem)
    assert outcome.status in ("done", "kept"), f"cell {outcome.cell}: {outcome.error}"
    assert outcome.seconds < MOST_S
    record = record_of(outcome)
    assert record["tables"]["summary"]["rows"]
    for figure in record["figures"].values():
        assert json.loads((Path(outcome.folder) / figure["file"]).read_text())["data"] or "mailbox" in path.stem
    ran = nbformat.read(Path(outcome.folder) / f"{path.stem}.ipynb", as_version=4)
    said = "".join(
        o.get("text", "") for cell in ran.cells for o in cell.get("outputs", []) if o.get("name") == "stderr"
    )
    assert "Traceback" not in said
    assert "Warning" not in said, said


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not SOURCE.exists(), reason="the paper's statements are not beside this checkout")
def test_every_statement_of_the_paper_has_a_row_and_what_notebooks_answer_is_answered(batch, tmp_path):
    ledger = [unanswered(claim) for claim in (*CLAIMS, *NOTEBOOK_CLAIMS)]
    _, written = report.write(tmp_path, batch, ledger)
    rows = {row["id"]: row for row in json.loads(written.read_text())["claims"]}
    statements = yaml.safe_load(SOURCE.read_text())
    assert {statement["id"] for statement in statements} <= set(rows)
    found = {claim for outcome in batch for claim in record_of(outcome)["answers"]}
    assert found >= {"q-settling-ablation", "q-optimizations-alone", "q-net-cost", "q-better-sync"}
    ledger_answers = {claim.id for claim in CLAIMS}
    for statement in statements:
        row = rows[statement["id"]]
        if statement.get("role") == "anchor":
            assert row["predicted"] == "input", row
        elif row["id"] in found:
            assert row["predicted"] not in (None, "not answered yet"), row
            assert row["basis"] in ("measured", "simulated"), row
        else:
            assert row["predicted"] == "not answered yet", row
            assert statement["kind"] == "open" or row["id"] in ledger_answers, f"nobody answers {row['id']}"


@pytest.mark.slow
def test_papermill_as_a_user_types_it(tmp_path):
    (tmp_path / "notebooks").symlink_to(notebooks.folder())
    howto = (notebooks.folder().parent / "docs" / "howto.md").read_text()
    words = shlex.split(next(line for line in howto.splitlines() if line.startswith("papermill ")))
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out.ipynb").exists()
    record = json.loads((tmp_path / "runs" / "05_end_to_end" / "record.json").read_text())
    assert {row["rps"] for row in record["tables"]["ttft"]["rows"]} == {7.0}
