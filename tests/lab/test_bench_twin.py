"""The bench of the twin: its keys, and figures that fit together."""

import json

import pytest

from asaplab.cli import main


@pytest.mark.slow
def test_quick_bench_of_the_twin(tmp_path, capsys):
    assert main(["bench", "twin", "--quick", "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [row["system"] for row in result["rows"]] == ["asap", "default", "chunked"]
    for row in result["rows"]:
        assert row["events_per_s"] == pytest.approx(row["events"] / row["seconds"])
        assert row["simulated_over_wall"] > 1
    assert result["compiled_over_python"] > 1
    assert result["slo_seconds"] is None
    assert json.loads((tmp_path / "bench-twin.json").read_text())["complete"]
