"""The /asap page of a running instance: real devices, seen while they work."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import asaplab
from asaplab.lab.workloads import traffic

LOOK = """() => {
  const source = name => Bokeh.documents[0].get_model_by_name(name).renderers[0].data_source.data;
  const devices = source("asap-busy"), bars = source("asap-pipeline");
  return {devices: [...devices.device], busy: [...devices.busy], depth: [...devices.depth],
          bars: [...bars.what], text: JSON.stringify(Bokeh.documents[0].to_json())};
}"""


def prefill(instance: Any, failed: list[BaseException]) -> None:
    try:
        instance.prefill(traffic(rps=12, limit=72, length_scale=0.05))
    except BaseException as error:
        failed.append(error)


@pytest.mark.slow
def test_page_shows_the_devices_of_a_running_instance(page, pictures):
    failed: list[BaseException] = []
    with asaplab.deploy("tiny-deepseek-v3", attention=(2, 1), experts=2, system="asap", mode="paced") as instance:
        names = [spec.name for spec in instance.specs]
        page.goto(instance.dashboard_link.replace("/status", "/asap"))
        page.wait_for_function("() => window.Bokeh?.documents?.length")
        work = threading.Thread(target=prefill, args=(instance, failed))
        work.start()
        page.wait_for_function(f"n => {{ const seen = ({LOOK})(); return seen.bars.length > n; }}", arg=50)
        first = page.evaluate(LOOK)
        page.wait_for_timeout(1000)
        second = page.evaluate(LOOK)
        page.screenshot(path=pictures / "dashboard-live-1280.png")
        work.join(timeout=60)
    assert not failed, failed
    assert sorted(second["devices"]) == sorted(names)
    assert all(0 <= share <= 1 for share in second["busy"])
    assert sum(share > 0 for share in second["busy"]) >= 2, second["busy"]
    assert first["busy"] != second["busy"], "the page stands still"
    assert second["bars"][-1] != first["bars"][-1], "no newer bar arrived within a second"
    assert {what.split(",")[0] for what in second["bars"]} >= {"attention", "moe", "dispatch", "combine"}
    assert "batches in flight" in second["text"]
    assert not page.faults
