"""What a notebook leaves behind: tables, figures and answers to claims, as files that the report reads.

Results are never scraped from notebook cells, so a notebook run by hand and one run in a batch report alike.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asaplab.lab.recipes import Recipe, question, recipe
from asaplab.lab.tables import table_html, table_text
from asaplab.observe import provenance

_PARAMETERS = re.compile(r"^#\s*parameters\b", re.IGNORECASE)


def parameters(history: Sequence[str], namespace: Mapping[str, Any]) -> dict[str, Any]:
    """The values set by a notebook's parameters cell and by the cell that papermill injects after it.

    ``history`` is IPython's ``In``. Both cells begin with ``# parameters``; papermill only warns about unknown names,
    so every name found here goes to the recipe, which refuses what it does not know.
    """
    names: list[str] = []
    for source in history:
        if _PARAMETERS.match(source):
            for node in ast.parse(source).body:
                if isinstance(node, ast.Assign):
                    names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return {name: namespace[name] for name in names}


@dataclass(frozen=True, kw_only=True)
class Record:
    """The results of one run of a recipe, written to ``recipe.out`` as they come."""

    recipe: Recipe
    live: bool = True  # somebody may be watching; papermill's runs have no one to move a slider
    tables: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], caption: str) -> Any:
        """Keep rows under a name and return them as a small HTML table for the notebook."""
        self.tables[name] = {"caption": caption, "rows": [dict(row) for row in rows]}
        self._write()
        return _Shown(self.tables[name])

    def figure(self, name: str, figure: Any, caption: str) -> Any:
        """Keep a plotly figure under a name and return it for the notebook."""
        folder = self.recipe.out / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(figure.to_json())
        self.figures[name] = {"caption": caption, "file": f"figures/{name}.json"}
        self._write()
        return figure

    def answer(self, claim: str, value: Any, note: str, basis: str = "") -> None:
        """Answer a claim or an open question of the ledger: ``basis`` is measured, simulated or assumed."""
        default = "measured" if self.recipe.body == "engine" else "simulated"
        self.answers[claim] = {"value": _plain(value), "note": note, "basis": basis or default}
        self._write()

    def _write(self) -> None:
        self.recipe.out.mkdir(parents=True, exist_ok=True)
        content = {
            "recipe": self.recipe.name,
            "notebook": self.recipe.notebook,
            "question": question(self.recipe.name),
            "scale": self.recipe.scale,
            "settings": _plain(dict(self.recipe.settings) | {"seed": self.recipe.seed}),
            "tables": _plain(self.tables),
            "figures": self.figures,
            "answers": self.answers,
            "provenance": provenance(),
        }
        (self.recipe.out / "record.json").write_text(json.dumps(content, indent=1))


def begin(name: str, history: Sequence[str], namespace: Mapping[str, Any]) -> Record:
    """Open the record of a recipe with the parameters of the notebook that calls: ``begin("deploy", In, globals())``.

    Raises:
        InputError: a parameter that the recipe does not have, or a value of the wrong kind.
    """
    live = not any(source.startswith("# Parameters") for source in history)  # the cell that papermill injects
    return Record(recipe=recipe(name, **parameters(history, namespace)), live=live)


def _plain(value: Any) -> Any:
    """JSON's own kinds: numpy scalars and arrays, tuples and paths become numbers, lists and text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and value != value:
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


class _Shown:
    """A table that Jupyter shows as HTML and a terminal as text."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.content = table

    def _repr_html_(self) -> str:
        return table_html(self.content["rows"], self.content["caption"])

    def __repr__(self) -> str:
        return table_text(self.content["rows"])
