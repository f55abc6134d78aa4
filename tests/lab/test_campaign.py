"""A batch of small notebooks of its own: failures are reported and survived, finished ones kept, parameters refused."""

from __future__ import annotations

import dataclasses
import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from asaplab.errors import InputError
from asaplab.lab import campaign, notebooks, report

PARAMETERS = """# parameters
scale = "smoke"  # scale
tokens = None  # tokens
seed = 0  # seed
out = "runs/x"  # folder
"""
BEGIN = """from asaplab.lab.record import begin

record = begin("mailboxes", In, globals())
"""
GOOD = """import plotly.graph_objects as go

record.table("summary", [{"tokens": record.recipe["tokens"], "seed": record.recipe.seed}], "what it was given")
record.figure("line", go.Figure(go.Scatter(y=[1, 2, record.recipe["tokens"]])), "a line with </script> in its caption")
record.answer("q-net-cost", 0.25, "half of a half")
record.answer("q-better-sync", 1.0, "of one seed; the ledger knows better")
"""


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder with a notebook that works and one that fails in its third code cell."""
    for stem, last in (("51_good", GOOD), ("52_bad", "raise RuntimeError('the cell that fails')")):
        cells = [
            new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
            new_code_cell(BEGIN),
            new_code_cell(last),
        ]
        kernel = {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python 3"}}
        nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / f"{stem}.ipynb")
    monkeypatch.setattr(notebooks, "folder", lambda: tmp_path)
    return tmp_path / "out"


def test_unknown_parameters_are_refused_before_anything_runs(shelf):
    with pytest.raises(InputError, match="no parameter 'tokns'"):
        campaign.plan(scale="smoke", only=[], out=shelf, changes={"tokns": 3})
    assert not shelf.exists()


@pytest.mark.slow
def test_a_failed_notebook_is_reported_and_the_others_go_on_and_are_kept(shelf):
    cells = []
    jobs = campaign.plan(scale="smoke", only=[], out=shelf, changes={"tokens": 9})
    good, bad = campaign.execute(jobs, progress=lambda *cell: cells.append(cell))
    assert (good.status, bad.status) == ("done", "failed")
    assert bad.error == "RuntimeError: the cell that fails"
    assert bad.cell == 3  # papermill injects a cell, so the third is the fourth: number 3
    assert ("51_good", 4, 4) in [tuple(cell) for cell in cells]

    claims = [
        {"id": "q-net-cost", "kind": "open", "predicted": None},
        {"id": "q-other", "kind": "open", "predicted": None},
        {"id": "q-better-sync", "kind": "open", "predicted": 15.0, "ci95": [14.0, 16.0]},
        {"id": "anchored", "kind": "published", "role": "anchor", "predicted": "input"},
    ]
    page, ledger = report.write(shelf, [good, bad], claims)
    text = page.read_text()
    assert "http://" not in text.split("<body>")[1]
    assert "the cell that fails" in text
    rows = {row["id"]: row for row in json.loads(ledger.read_text())["claims"]}
    assert (rows["q-net-cost"]["predicted"], rows["q-net-cost"]["basis"]) == (0.25, "measured")
    assert rows["q-other"]["predicted"] == "not answered yet"
    assert rows["anchored"]["predicted"] == "input"
    assert rows["q-better-sync"]["predicted"] == 15.0
    assert "what it was given" in report.summary([good, bad])

    again = campaign.execute([jobs[0]])
    assert again == [dataclasses.replace(good, status="kept")]
    other = campaign.plan(scale="smoke", only=["51"], out=shelf, changes={"tokens": 8})
    assert campaign._kept(other[0]) is None


def test_a_notebook_refuses_parameters_that_papermill_only_warns_about(shelf):
    import papermill
    from papermill.exceptions import PapermillExecutionError

    source, target = notebooks.folder() / "51_good.ipynb", notebooks.folder() / "ran.ipynb"
    with pytest.raises(PapermillExecutionError, match="no parameter 'tokns'"):
        papermill.execute_notebook(str(source), str(target), parameters={"tokns": 3}, progress_bar=False)
