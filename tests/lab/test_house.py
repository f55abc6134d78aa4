"""The house rules that a machine can check: packaging files agree, imports go downward, files stay short."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS = {
    "__main__": 6,
    "cli": 5,
    "lab": 4,
    "engine": 3,
    "twin": 3,
    "show": 3,
    "models": 2,
    "primitives": 2,
    "scheduler": 2,
    "profiles": 2,
    "workload": 2,
    "observe": 2,
    "core": 1,
    "errors": 0,
    "superkernel": 1,
}


def requirements() -> list[Requirement]:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return [Requirement(line) for group in groups for line in group]


def test_environment_file_installs_exactly_what_pyproject_says():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == ["-e .[dev]"]
    python = next(entry for entry in environment["dependencies"] if str(entry).startswith("python="))
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.split("=")[1] + ".0")


def test_every_dependency_is_pinned_to_a_version_that_pyproject_allows():
    lines = (ROOT / "constraints-ci.txt").read_text().split()
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        if name in {"asaplab", "triton", "aiconfigurator-core"}:  # triton: torch pins its own; aiconfigurator: optional
            continue
        assert name in pins, f"{name} has no line in constraints-ci.txt; run make constraints"
        assert requirement.specifier.contains(pins[name]), f"{requirement} does not allow {pins[name]}"
    assert pins["torch"] == "2.13.0"


def imports(path: Path) -> set[str]:
    """The asaplab packages that a file imports when it is loaded or called."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("asaplab.")}
    return found


def test_imports_go_only_downward():
    wrong = []
    for path in (ROOT / "asaplab").rglob("*.py"):
        room = path.relative_to(ROOT / "asaplab").parts[0].removesuffix(".py")
        if room not in FLOORS:
            continue
        for other in imports(path) - {room}:
            if FLOORS.get(other, 0) >= FLOORS[room]:
                wrong.append(f"{path.relative_to(ROOT)} imports {other}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["asaplab", "tests"])
def test_files_can_be_read_in_one_go(folder):
    long = [f"{p}: {n}" for p in (ROOT / folder).rglob("*.py") if (n := len(p.read_text().splitlines())) > 320]
    assert not long, "\n".join(long)


def test_the_tree_names_no_machine_and_no_registry():
    places = ["/" + "work/", "/" + "root/", "py" + "pi.org/simple", "files.python" + "hosted"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for path in map(ROOT.joinpath, listed.stdout.split("\n")[:-1]):
        if path.is_file() and path.suffix in {
            ".py",
            ".toml",
            ".txt",
            ".md",
            ".yml",
            ".yaml",
            ".ipynb",
            ".json",
            ".sh",
            ".js",
            "",
        }:
            text = path.read_text(errors="ignore")
            assert not [place for place in places if place in text], f"{path.relative_to(ROOT)} names a machine"
