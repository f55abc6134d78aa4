import json
import time

import numpy as np
import pytest

from asaplab.core import Span
from asaplab.observe import SpanLog, chrome_trace, concat, provenance
from asaplab.workload import poisson
from tests.observe.runs import known_run


def test_a_log_gives_back_what_was_appended():
    log = SpanLog("moe 3", "receive", capacity=8)
    log.append("moe", 7, 2, 1.5, 1.75, 640)
    log.append("idle", -1, -1, 1.75, 2.0, 0)
    columns = log.columns()
    rows = [Span(*(columns[name][i].item() for name in Span._fields)) for i in range(2)]
    assert rows == [
        Span("moe 3", "receive", "moe", 7, 2, 1.5, 1.75, 640),
        Span("moe 3", "receive", "idle", -1, -1, 1.75, 2.0, 0),
    ]
    assert log.columns(since=1)["batch"].tolist() == [-1]


def test_a_full_log_drops_and_counts():
    log = SpanLog("host", capacity=2)
    for i in range(5):
        log.append("host", i, 0, i, i + 1, 1)
    assert (len(log), log.dropped) == (2, 3)
    assert log.columns()["batch"].tolist() == [0, 1]
    log.clear()
    assert (len(log), log.dropped) == (0, 0)


def test_an_unknown_kind_is_refused():
    with pytest.raises(KeyError):
        SpanLog("host").append("coffee", 0, 0, 0.0, 1.0, 1)


def test_columns_are_copies():
    log = SpanLog("host", capacity=2)
    log.append("host", 1, 0, 0.0, 1.0, 1)
    before = log.columns()
    log.clear()
    log.append("host", 2, 0, 5.0, 6.0, 1)
    assert before["batch"].tolist() == [1]
    assert before["start_s"].tolist() == [0.0]


def test_many_logs_become_one_table_in_order_of_time():
    a, b = SpanLog("attention 0.0"), SpanLog("moe 11", "send")
    b.append("combine", 0, 1, 0.5, 0.6, 3)
    a.append("attention", 0, 0, 0.1, 0.2, 3)
    a.append("attention", 0, 1, 0.9, 1.0, 3)
    table = concat([a, b, SpanLog("moe 1").columns()])
    assert table["device"].tolist() == ["attention 0.0", "moe 11", "attention 0.0"]
    assert table["start_s"].tolist() == [0.1, 0.5, 0.9]
    assert len(concat([])["device"]) == 0


def test_appending_is_cheap():
    log = SpanLog("host", capacity=20_000)
    best = min(_seconds_a_span(log) for _ in range(5))
    assert best < 10e-6  # about 1 us where measured; the bound leaves room for a shared machine


def _seconds_a_span(log):
    log.clear()
    start = time.perf_counter()
    for i in range(20_000):
        log.append("moe", i, 3, 0.5, 0.75, 64)
    return (time.perf_counter() - start) / 20_000


def test_the_chrome_trace_has_every_span_and_request(tmp_path):
    run = known_run()
    events = json.loads(chrome_trace(run, tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(run.spans["kind"])
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    moe = next(event for event in spans if event["cat"] == "moe")
    assert names[moe["pid"]] == "moe 0"
    assert moe["ts"] == pytest.approx(0.3e6)
    assert moe["dur"] == pytest.approx(0.1e6)
    assert moe["args"] == {"batch": 0, "layer": 0, "tokens": 500}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    combine = next(event for event in spans if event["cat"] == "combine")
    assert threads[combine["pid"], combine["tid"]] == "send"
    assert sum(event["ph"] == "b" for event in events) == sum(event["ph"] == "e" for event in events) == 3


def test_devices_are_sorted_by_number_in_the_trace(tmp_path):
    logs = [SpanLog(f"moe {e}") for e in (10, 9, 2)]
    for log in logs:
        log.append("moe", 0, 0, 0.0, 1.0, 1)
    events = json.loads(chrome_trace(known_run(spans=concat(logs)), tmp_path / "t").read_text())["traceEvents"]
    named = [e["args"]["name"] for e in events if e["name"] == "process_name" and e["pid"]]
    assert named == ["moe 2", "moe 9", "moe 10"]


def test_a_run_without_spans_exports_its_requests(tmp_path):
    events = json.loads(chrome_trace(known_run(spans={}), tmp_path / "t").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"b", "e", "M"}


def test_provenance_says_what_is_needed_and_nothing_private(monkeypatch):
    record = provenance(poisson(rps=2, requests=3, seed=9), mode="paced")
    assert record["seed"] == 9
    assert record["source"]["kind"] == "poisson"
    assert record["mode"] == "paced"
    assert record["packages"]["numpy"] == np.__version__
    assert record["cores"] >= 1
    text = json.dumps(record)
    import getpass
    import socket
    from pathlib import Path

    assert socket.gethostname() not in text
    assert str(Path(__file__).parents[2]) not in text
    user = getpass.getuser()
    assert user == "root" or user not in text
