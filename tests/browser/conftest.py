"""Headless Chromium for the tests that look at pages as a person would; skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page 1280 wide that collects its errors in ``page.faults`` and may reach this machine only."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.faults = []
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    yield opened
    context.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept as artefacts."""
    folder = Path(os.environ.get("ASAPLAB_PICTURES", ROOT / "runs" / "pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
