"""Every committed notebook keeps the rules, and the rules notice when one does not."""

from __future__ import annotations

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from asaplab.errors import InputError
from asaplab.lab import notebooks
from asaplab.lab.recipes import RECIPES, recipe

EVERY = notebooks.numbered()


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_notebook_is_fit_to_commit(path):
    assert notebooks.faults(path) == []


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_notebook_belongs_to_its_recipe(path):
    assert recipe(notebooks.recipe_of(path)).notebook == path.stem


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_notebook_says_its_question_source_and_run_time(path):
    head = nbformat.read(path, as_version=4).cells[0].source
    assert re.match(r"# \d\d ", head)
    assert "?" in head
    assert "Source:" in head
    assert "Run time:" in head


def test_every_recipe_has_its_notebook():
    stems = {path.stem for path in EVERY}
    assert {recipe(name).notebook for name in RECIPES} == stems


def test_unknown_notebooks_are_refused_by_name():
    with pytest.raises(InputError, match="no notebook '99'"):
        notebooks.numbered(["99"])


PARAMETERS = "# parameters\ntokens = None  # how many\n"
BEGIN = "record = begin('mailboxes', In, globals())"
LONG = "def f():\n" + "    pass\n" * 10


def written(folder, *, parameters=PARAMETERS, last="1 + 1", outputs=(), cell_metadata=None, metadata=None):
    cells = [
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        new_code_cell(BEGIN),
        new_code_cell(last, outputs=list(outputs), metadata=cell_metadata or {}),
    ]
    path = folder / "99_made.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata=metadata or {}), path)
    return path


def test_a_clean_notebook_has_no_faults(tmp_path):
    assert notebooks.faults(written(tmp_path, last=LONG.replace("    pass\n", "", 1))) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ({"outputs": [new_output("stream", text="42")]}, "cell 3 has outputs"),
        ({"metadata": {"widgets": {"application/vnd.jupyter.widget-state+json": {}}}}, "has widgets metadata"),
        ({"metadata": {"papermill": {"duration": 1.0}}}, "has papermill metadata"),
        ({"cell_metadata": {"papermill": {"duration": 1.0}}}, r"cell 3 has metadata \['papermill'\]"),
        ({"last": f"text = {'x' * 100_000!r}"}, "bytes; 100000 are allowed"),
        ({"parameters": PARAMETERS + "tokns = 3  # how many\n"}, "parameter tokns is no setting of the recipe"),
        ({"parameters": "# parameters\ntokens = None\n"}, "parameter tokens has no comment"),
        ({"last": LONG}, "cell 3 defines f with 11 lines"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_rule_refuses_a_notebook_that_breaks_it(tmp_path, bad, fault):
    (found,) = notebooks.faults(written(tmp_path, **bad))
    assert re.search(fault, found)
