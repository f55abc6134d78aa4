"""What serves until it is stopped: ``asaplab lab`` from start to Ctrl-C, and notebooks under Voila."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from asaplab.lab import jupyter


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def serving(words: list[str], folder: Path, wanted: str):
    """The process and what it printed, once a line of it matches; Ctrl-C in the end, as from a terminal."""
    log = folder / "printed.txt"
    with log.open("w") as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=folder, stdout=printed, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        for _ in range(600):
            if re.search(wanted, log.read_text()):
                break
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        yield process, log
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_lab_starts_prints_its_links_opens_and_stops_clean(page, tmp_path, pictures):
    lab = r"http://127\.0\.0\.1:\d+/lab\S*token=\w+"
    command = ["asaplab.cli", "lab", "--no-browser", "--port", str(free_port()), "--notebooks", "mine"]
    with serving(command, tmp_path, lab) as (process, log):
        said = log.read_text()
        page.set_default_timeout(60_000)
        page.goto(re.search(r"Dask dashboard: (\S+/asap)", said)[1])
        page.get_by_text("No device has reported yet").wait_for()
        page.goto(re.search(lab, said)[0])
        page.get_by_role("heading", name="asaplab").wait_for()
        assert page.get_by_text("notified about official").count() == 0
        page.screenshot(path=pictures / "lab-index-1280.png")
        assert (tmp_path / "mine" / "13_your_traffic.ipynb").exists()
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3  # two workers and a server
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 0
    psutil.wait_procs(children, timeout=10)
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert "Traceback" not in log.read_text()
    assert not page.faults


@pytest.fixture(scope="module")
def voila(tmp_path_factory):
    pytest.importorskip("voila")
    folder = tmp_path_factory.mktemp("voila")
    jupyter.copy_notebooks(folder)
    port = free_port()
    with serving(["voila", "--no-browser", f"--port={port}", "."], folder, r"Voil. is running at"):
        yield f"http://127.0.0.1:{port}/voila/render"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seen"),
    [("04_live_pipeline", ".asap-live canvas[data-bars]"), ("13_your_traffic", ".js-plotly-plot .main-svg")],
)
def test_voila_serves_a_notebook_with_its_figures_and_no_code(page, voila, pictures, name, seen):
    page.set_default_timeout(120_000)
    page.goto(f"{voila}/{name}.ipynb")
    page.wait_for_selector(seen, state="attached")
    page.get_by_role("cell", name="asap", exact=True).first.wait_for()  # the row of a table
    assert page.get_by_text("import asaplab").count() == 0
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0
    page.screenshot(path=pictures / f"voila-{name[:2]}-1280.png", full_page=True)
    assert [fault for fault in page.faults if "setData" not in fault] == []  # Voila's own, when it draws a figure twice
