"""The numbered notebooks that ship with the package, and the rules they keep.

Files are read as the JSON that they are: loading nbformat takes seconds, and every kernel would pay them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import asaplab
from asaplab.errors import InputError
from asaplab.lab.recipes import recipe

INDEX = "00_index"  # links to the others; nothing to run
MOST_BYTES = 100_000
MOST_LINES = 10  # of a function defined in a notebook: longer ones belong into the package


def folder() -> Path:
    """Where the notebooks lie: inside the installed package, or beside it in a source checkout."""
    package = Path(asaplab.__file__).parent
    shipped = package / "notebooks"
    return shipped if shipped.is_dir() else package.parent / "notebooks"


def numbered(only: Sequence[str] = ()) -> list[Path]:
    """The notebooks in order, or those whose number or stem is named in ``only``.

    Raises:
        InputError: ``only`` names a notebook that does not exist.
    """
    every = [path for path in sorted(folder().glob("[0-9][0-9]_*.ipynb")) if path.stem != INDEX]
    chosen = []
    for name in only:
        found = [path for path in every if name in (path.stem, path.stem[:2]) or name == path.stem[:2].lstrip("0")]
        if not found:
            raise InputError(f"there is no notebook {name!r}; there are {', '.join(path.stem for path in every)}")
        chosen += found
    return chosen or every


def read(path: Path) -> dict[str, Any]:
    """A notebook as plain values, each cell's ``source`` one text."""
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def recipe_of(path: Path) -> str:
    """The recipe that a notebook begins with: the first argument of its call of ``begin``."""
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code" and "begin(" in cell["source"]:
            for node in ast.walk(ast.parse(cell["source"])):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "begin":
                    return ast.literal_eval(node.args[0])
    raise InputError(f"notebook {path.name} begins no recipe; call begin(NAME, In, globals()) in its second code cell")


def known_parameters(path: Path) -> dict[str, str]:
    """The parameters of a notebook with the comment that documents each."""
    for cell in read(path)["cells"]:
        if "parameters" in cell["metadata"].get("tags", []):
            lines = [line for line in cell["source"].splitlines() if "=" in line.split("#")[0]]
            return {line.split("=")[0].strip(): line.partition("#")[2].strip() for line in lines}
    raise InputError(f"notebook {path.name} has no parameters; tag one cell with 'parameters'")


def faults(path: Path) -> list[str]:
    """Every rule of the house that a notebook breaks, one sentence each; none when it is fit to commit."""
    notebook = read(path)
    found = []
    if path.stat().st_size > MOST_BYTES:
        found.append(f"{path.name} has {path.stat().st_size} bytes; {MOST_BYTES} are allowed")
    for key in sorted({"papermill", "widgets"} & set(notebook["metadata"])):
        found.append(f"{path.name} has {key} metadata; commit notebooks as they were before running")
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            found += [f"{path.name}, cell {number} {fault}" for fault in _cell_faults(cell)]
    return found + [f"{path.name}: parameter {fault}" for fault in _parameter_faults(path)]


def _cell_faults(cell: dict[str, Any]) -> Iterator[str]:
    if cell.get("outputs") or cell.get("execution_count") is not None:
        yield "has outputs; clear them"
    if more := sorted(set(cell["metadata"]) - {"tags"}):
        yield f"has metadata {more}; remove it"
    for node in ast.walk(ast.parse(cell["source"])):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MOST_LINES:
                yield f"defines {node.name} with {lines} lines; {MOST_LINES} are allowed"


def _parameter_faults(path: Path) -> Iterator[str]:
    known = {"scale", "seed", "out", *recipe(recipe_of(path)).settings}
    for name, comment in known_parameters(path).items():
        if not comment:
            yield f"{name} has no comment; say what it is"
        if name not in known:
            yield f"{name} is no setting of the recipe; it has {', '.join(sorted(known))}"
