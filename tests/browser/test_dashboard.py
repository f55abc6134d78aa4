"""The /asap page as a person sees it: live numbers, bars that move, and the stock pages beside it."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest

from asaplab.lab.cluster import local


def speak(dask_scheduler: Any, rounds: int = 1) -> None:
    """What six devices tell the scheduler in a tenth of a second."""
    start = time.monotonic()
    for n in range(rounds):
        at = start + 0.1 * n
        for i in range(4):
            spans = [
                ("compute", "attention", 10 + i, k, at + 0.02 * k, at + 0.02 * k + 0.004 * (i + 1), 512)
                for k in range(5)
            ]
            message = {"role": "attention", "busy": 0.2 * (i + 1), "depth": i, "spans": spans}
            dask_scheduler.stream_handlers["asap-telemetry"](worker="w", device=f"attention {i}.0", **message)
        for e in range(2):
            spans = [("compute", "moe", 10, k, at + 0.02 * k + 0.01, at + 0.02 * k + 0.014, 900) for k in range(5)]
            message = {"role": "moe", "busy": 0.3, "depth": 1, "spans": spans}
            dask_scheduler.stream_handlers["asap-telemetry"](worker="w", device=f"moe {e}", **message)
    dask_scheduler.log_event("asap-notebooks", ("05_end_to_end", 3, 9))


@pytest.fixture(scope="module")
def link():
    from distributed import Client

    with local(workers=1) as cluster, Client(cluster, set_as_default=False) as client:
        client.run_on_scheduler(speak, rounds=20)
        yield cluster.dashboard_link.removesuffix("/status"), client


def test_page_shows_devices_numbers_and_progress(page, link, pictures):
    address, client = link
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(f"{address}/asap")
    page.wait_for_function("() => window.Bokeh?.documents?.length")
    client.run_on_scheduler(speak, rounds=20)
    page.wait_for_timeout(1500)
    said = page.evaluate("() => Bokeh.documents[0].get_model_by_name && JSON.stringify(Bokeh.documents[0].to_json())")
    for word in ("attention 3.0", "moe 1", "attention busy", "DP imbalance", "batches in flight", "05_end_to_end"):
        assert word in said, word
    page.screenshot(path=pictures / "dashboard-1280.png")
    page.set_viewport_size({"width": 1920, "height": 1000})
    page.wait_for_timeout(800)
    page.screenshot(path=pictures / "dashboard-1920.png")
    assert not page.faults


def test_silence_leaves_the_page_standing_and_the_panes_have_addresses_of_their_own(page, link):
    address, _ = link
    for name in ("utilization", "queues", "pipeline"):
        page.goto(f"{address}/individual-asap-{name}")
        page.wait_for_function("() => window.Bokeh?.documents?.length")
    assert not page.faults


@pytest.mark.parametrize("stock", ["status", "workers", "tasks", "system", "graph", "info/main/workers.html"])
def test_stock_pages_still_work(link, stock):
    address, _ = link
    with urllib.request.urlopen(f"{address}/{stock}", timeout=20) as answer:
        assert answer.status == 200
