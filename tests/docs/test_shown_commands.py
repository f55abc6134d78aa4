"""Every command that README and docs show is run as it stands, in the order of its page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], key=lambda page: (page.stem != "tutorial", page.stem)
)
ELSEWHERE = ("asaplab lab", "asaplab reproduce --scale smoke", "papermill ")  # by tests/browser and tests/notebooks


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """The lines of bash blocks, and the commands in the left column of a table that have arguments."""
    lines = [line for block in blocks(page, "bash") for line in block.splitlines() if line.strip()]
    lines += re.findall(r"^\| `(asaplab [a-z]+ --?[^`]*)` \|", page.read_text(), re.MULTILINE)
    return [line for line in lines if not line.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """An empty folder that finds the notebooks where a checkout has them."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "notebooks").symlink_to(ROOT / "notebooks")
    return folder


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run_as_shown(page, workplace):
    for line in commands(page):
        words = shlex.split(line)
        if words[0] == "asaplab":
            words = [sys.executable, "-m", "asaplab.cli", *words[1:]]
        done = run(words, workplace)
        assert done.returncode == 0, f"{line}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
    for block in blocks(page, "python"):
        done = run([sys.executable, "-c", block], workplace)
        assert done.returncode == 0, f"{block}\n{done.stderr[-2000:]}"


def test_commands_page_names_every_command():
    from asaplab.cli import parser

    actions = [action for action in parser()._actions if action.dest == "command"]
    known = set(actions[0].choices)
    shown = set(re.findall(r"^\| `asaplab ([a-z]+)`", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE))
    assert known <= shown


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, *(ROOT / "cluster").rglob("README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
