"""The page of the benchmarks shows what was saved, and says how to measure what was not."""

import importlib.util
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def page(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("benchmarks_page", DOCS / "benchmarks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path / "made")
    return module


def test_committed_tables_are_those_of_the_saved_results(page):
    page.main(DOCS / "benchmarks")
    made = {path.name: path.read_text() for path in page.HERE.iterdir()}
    assert {f"{name}.md" for name in ("primitives", "superkernel", "attention", "engine", "twin")} <= set(made)
    for name, content in made.items():
        assert (DOCS / "benchmarks" / name).read_text() == content, f"run python docs/benchmarks.py for {name}"


def test_what_was_not_measured_says_so(page, tmp_path):
    page.main(tmp_path)
    assert "asaplab bench engine --out docs/benchmarks" in (page.HERE / "engine.md").read_text()


ENGINE = {
    "machine": {
        "processor": "P", "cores": 2, "memory_gb": 16.0, "load": [1.0, 1.2, 1.0], "cpu_capability": "AVX2",
        "torch": "2", "python": "3.11", "when": "now",
    },
    "complete": True,
    "disaggregation_efficiency": {"value": 0.9, "ci95": [0.8, 1.0], "attention_share": 0.5, "batch": "8 x 256"},
    "reference_over_transformers": {"qwen3_moe": 2.0},
    "slo": {
        "azure": {
            "slo_s": 1.0, "pace": 500.0, "run_s": 60.0, "mean_tokens": 130.0, "excluded": 4,
            "slo_rps": {
                "asap": {"value": 8.0, "ci95": [7.0, 9.0], "devices": "3x1+1"},
                "default": {"value": 4.0, "ci95": None, "devices": "4 colocated"},
            },
            "ratios": {"asap/default": {"value": 2.0, "ci95": [1.5, 2.5]}},
        }
    },
    "twin": {"azure": {"slo_s": 1.0, "pace": 500.0, "rps": {"asap": {"value": 7.5, "ci95": [7.0, 8.0]}}}},
    "factorial": {
        "rps": 3.0, "devices": "3x1+1", "traffic": "azure", "sustained": True,
        "effects": {"overlap": {"value": 0.8, "ci95": [0.7, 0.9]}},
        "rows": [{"on": [], "mean_ttft_s": 0.5}, {"on": ["overlap"], "mean_ttft_s": 0.4}],
    },
    "net_cost": {
        "rps": 3.0, "devices": "3x1+1", "traffic": "azure",
        "groups": {"barriers": {"value": -0.2, "ci95": [-0.3, -0.1]}},
        "asap_minus_default": {"ttft": {"value": -0.1, "ci95": None}},
    },
}  # fmt: skip


def test_the_twin_stands_only_beside_what_it_spoke_of(page, tmp_path):
    other = {"twin": {"azure": ENGINE["twin"]["azure"] | {"pace": 600.0}}}
    (tmp_path / "bench-engine.json").write_text(json.dumps(ENGINE | other))
    page.main(tmp_path)
    assert "| asap | 3x1+1 | 8 (7 to 9) |\n" in (page.HERE / "engine.md").read_text()


@pytest.mark.parametrize(
    "changes",
    [{}, {"slo": {}, "factorial": None, "net_cost": None}, {"disaggregation_efficiency": None}],
    ids=["all", "quick", "parts"],
)
def test_engine_shows_intervals_and_leaves_out_what_is_missing(page, tmp_path, changes):
    (tmp_path / "bench-engine.json").write_text(json.dumps(ENGINE | changes))
    page.main(tmp_path)
    shown = (page.HERE / "engine.md").read_text()
    assert ("| asap | 3x1+1 | 8 (7 to 9) | 7.5 (7 to 8) |" in shown) == ("slo" not in changes)
    assert ("| barriers | -0.2 (-0.3 to -0.1) |" in shown) == ("net_cost" not in changes)
    assert ("0.9 (0.8 to 1)" in shown) == ("disaggregation_efficiency" not in changes)
    assert "loaded" not in shown


def test_a_loaded_or_interrupted_run_is_marked(page):
    loaded = ENGINE | {"complete": False, "machine": ENGINE["machine"] | {"load": [9.0, 8.0, 7.0]}}
    assert "**The machine was loaded" in page.machine(loaded)
    assert "Interrupted" in page.machine(loaded)


def test_the_figure_has_a_line_a_peer_and_panel(page):
    rows = [
        {"peer": peer, "tokens": n, "receivers": 4, "busy": busy, "blocked_us": 100.0 * n}
        for peer in ("async", "gloo") for n in (1, 1024) for busy in (False, True)
    ]  # fmt: skip
    root = ElementTree.fromstring(page.chart([*rows, rows[0] | {"receivers": 8}]))
    lines = [e for e in root if e.tag.endswith("polyline")]
    assert len(lines) == 4
    assert all(len(line.get("points").split()) == 2 for line in lines)
