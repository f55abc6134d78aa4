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
def test_notebook_and_recipe_know_the_same_parameters(path):
    made = recipe(notebooks.recipe_of(path))
    assert made.notebook == path.stem
    known = set(notebooks.known_parameters(path)) - {"scale", "seed", "out"}
    assert known <= set(made.settings), f"{known - set(made.settings)} are no settings of the recipe"


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


def test_rules_notice_outputs_metadata_size_long_functions_and_undocumented_parameters(tmp_path):
    long_function = "def f():\n" + "    pass\n" * 12
    dirty = new_notebook(
        cells=[
            new_code_cell("# parameters\nrps = 1", metadata={"tags": ["parameters"]}),
            new_code_cell(
                long_function, outputs=[new_output("stream", text="x" * 200_000)], metadata={"papermill": {}}
            ),
        ],
        metadata={"papermill": {"duration": 1}, "widgets": {}},
    )
    path = tmp_path / "99_dirty.ipynb"
    nbformat.write(dirty, path)
    found = "\n".join(notebooks.faults(path))
    for rule in (
        "bytes",
        "papermill metadata",
        "widgets metadata",
        "has outputs",
        "defines f with",
        "rps has no comment",
    ):
        assert rule in found
