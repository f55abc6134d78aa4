"""The attention benchmark at toy sizes."""

from __future__ import annotations

import json

import pytest

from asaplab.cli import main
from asaplab.lab import bench_attention


def test_it_reports_every_head_and_dtype(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_attention, "HEADS", {"GQA": (1, 2, 16, 16), "MLA": (2, 1, 24, 16)})
    monkeypatch.setattr(bench_attention, "QUICK", ((2, 128),))
    assert main(["bench", "attention", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["heads"], row["dtype"]) for row in rows] == [
        (heads, dtype) for heads in ("GQA", "MLA") for dtype in ("float32", "bfloat16")
    ]
    for row in rows:
        assert row["ratio"] > 0
        heads, d_and_dv = (2, 32) if row["heads"] == "GQA" else (2, 40)
        assert row["gflops"] * row["ms"] * 1e6 == pytest.approx(2 * heads * 128**2 * d_and_dv)
        assert row["peer"] in ("SDPA", "SDPA, padded values")
