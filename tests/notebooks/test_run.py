"""Every notebook runs at smoke scale in one batch, as ``asaplab reproduce --scale smoke`` runs them."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest

from asaplab.lab import campaign, notebooks

EVERY = notebooks.numbered()
MOST_S = (
    150.0  # a notebook takes at most 60 s with two cores to itself; two run at once here, on a machine of unknown mood
)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    out = tmp_path_factory.mktemp("batch")
    jobs = campaign.plan(scale="smoke", only=[], out=out, changes={"seed": 1})
    return {outcome.name: outcome for outcome in campaign.execute(jobs)}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_notebook_runs_and_leaves_its_results(batch, path):
    outcome = batch[path.stem]
    assert outcome.status == "done", f"cell {outcome.cell}: {outcome.error}"
    assert outcome.seconds < MOST_S
    record = json.loads((Path(outcome.folder) / "record.json").read_text())
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
def test_papermill_as_a_user_types_it(tmp_path):
    import papermill

    source = notebooks.folder() / "05_end_to_end.ipynb"
    changes = {"rps": 7, "systems": "asap", "out": str(tmp_path / "results")}
    papermill.execute_notebook(str(source), str(tmp_path / "out.ipynb"), parameters=changes, progress_bar=False)
    record = json.loads((tmp_path / "results" / "record.json").read_text())
    assert {row["rps"] for row in record["tables"]["ttft"]["rows"]} == {7.0}
