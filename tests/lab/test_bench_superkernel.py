"""The super kernel's benchmark at toy sizes, and its fit on curves whose bend is known."""

from __future__ import annotations

import json

import pytest

from asaplab.lab import bench_superkernel


@pytest.mark.parametrize("bend", [3.0, 13.0, 40.0])
def test_the_fit_finds_the_bend(bend: float) -> None:
    rows = [1, 2, 4, 8, 16, 32, 64, 128]
    assert bench_superkernel.inflection(rows, [max(5e-3, 5e-3 / bend * n) for n in rows]) == pytest.approx(bend)
    noisy = [max(5e-3, 5e-3 / bend * n) * (1.05 if i % 2 else 0.95) for i, n in enumerate(rows)]
    assert bench_superkernel.inflection(rows, noisy) == pytest.approx(bend, rel=0.2)


def test_it_reports_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("H", 64), ("I", 32), ("READ_BYTES", 1 << 16)):
        monkeypatch.setattr(bench_superkernel, name, value)
    result = bench_superkernel.bench(quick=True)
    json.dumps(result, allow_nan=False)
    assert {(row["dtype"], row["rows"]) for row in result["rows"]} == {
        (dtype, rows) for dtype in ("float32", "bfloat16") for rows in (64, 4096)
    }
    assert all(row["peak_ratio"] > 0 and row["bandwidth_ratio"] > 0 for row in result["rows"])
    assert result["dispatch_ratio"] is None or 0 < result["dispatch_ratio"] < 1
    assert result["inflection_rows_per_expert"] > 0
    assert result["threads"] == 1
