"""The command line: one JSON object on standard output, one sentence and exit status 2 for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from asaplab import models
from asaplab.cli import main

TRACE = Path(__file__).parents[2] / "shared" / "traces" / "mooncake" / "conversation_trace.0-300s.jsonl"


@pytest.fixture
def model(tmp_path):
    models.tiny.write("tiny-qwen3-moe", tmp_path / "model")
    return tmp_path / "model"


def refused(capsys, *argv: str) -> str:
    """Run a command that must be refused; returns its one sentence."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


def tensors(model: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    path = model / "model.safetensors"
    return path, load_file(path)


def test_missing_directory(capsys):
    assert "no/such/place" in refused(capsys, "prefill", "--model", "no/such/place", "--rps", "1")


def test_wrong_architecture(capsys, model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    assert "'llama' is not supported" in refused(capsys, "prefill", "--model", str(model), "--rps", "1")


def test_truncated_safetensors(capsys, model):
    path, _ = tensors(model)
    path.write_bytes(path.read_bytes()[:-1000])
    assert "model.safetensors" in refused(capsys, "prefill", "--model", str(model), "--rps", "1")


def test_wrong_shape(capsys, model):
    path, state = tensors(model)
    name = "model.layers.0.self_attn.q_proj.weight"
    save_file(state | {name: state[name][:-1].clone()}, path)
    assert name in refused(capsys, "prefill", "--model", str(model), "--rps", "1")


def test_missing_tensor(capsys, model):
    path, state = tensors(model)
    del state["model.norm.weight"]
    save_file(state, path)
    assert "model.norm.weight" in refused(capsys, "prefill", "--model", str(model), "--rps", "1")


@pytest.mark.slow
def test_nan_weights(capsys, model):
    path, state = tensors(model)
    name = "model.layers.1.self_attn.o_proj.weight"
    state[name][0, 0] = float("nan")
    save_file(state, path)
    assert name in refused(capsys, "prefill", "--model", str(model), "--rps", "1", "--limit", "1")


def test_malformed_trace_line(capsys, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\nnonsense\n')
    assert "line 2" in refused(capsys, "prefill", "--trace", str(trace))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--rps", "0"], "rps"),
        (["--rps", "-3"], "rps"),
        (["--rps", "nan"], "rps"),
        ([], "--trace FILE or --rps RATE"),
        (["--trace", "no-such-file.jsonl"], "no-such-file.jsonl"),
        (["--rps", "1", "--attention", "1x3"], "heads"),
        (["--rps", "1", "--attention", "two"], "DxT"),
        (["--rps", "1", "--attention", "0x1"], "D is 0"),
        (["--rps", "1", "--experts", "17"], "16 experts"),
        (["--rps", "1", "--system", "fastest"], "no system 'fastest'"),
        (["--rps", "1", "--dtype", "int4"], "int4"),
        (["--rps", "1", "--length-scale", "0"], "--length-scale"),
        (["--rps", "1", "--max-batch-tokens", "0"], "--max-batch-tokens"),
        (["--rps", "1", "--repeats", "0"], "--repeats"),
        (["--rps", "1", "--system", "default", "--tp", "3"], "--tp 3"),
    ],
)
def test_bad_flags(capsys, flags, words):
    assert words in refused(capsys, "prefill", *flags)


def test_unknown_checkpoint_name(capsys, tmp_path):
    assert "huge" in refused(capsys, "checkpoint", "huge", str(tmp_path / "x"))


def test_checkpoint_command_writes_a_loadable_model(capsys, tmp_path):
    assert main(["checkpoint", "tiny-deepseek-v3", str(tmp_path / "m"), "--json"]) == 0
    assert "config.json" in json.loads(capsys.readouterr().out)["files"]
    models.Checkpoint(tmp_path / "m").validate()


@pytest.mark.slow
@pytest.mark.parametrize("system", ["asap", "default"])
def test_prefill_over_a_trace(system, tmp_path):
    if not TRACE.exists():
        pytest.skip("the public traces are not beside this checkout")
    done = subprocess.run(
        [sys.executable, "-m", "asaplab.cli", "prefill", "--model", "tiny-deepseek-v3", "--attention", "2x1",
         "--experts", "2", "--system", system, "--trace", str(TRACE), "--limit", "64", "--length-scale", "0.05",
         "--time-scale", "0.1", "--json", "--out", str(tmp_path / "run")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["requests"] == result["completed"] == 64
    assert result["excluded"] == 0
    assert result["mode"] in ("paced", "shared cores")
    assert 0 < result["mean_ttft_s"] <= result["p99_ttft_s"]
    assert result["tokens_per_s"] > 0
    from asaplab import observe

    assert observe.metrics(observe.load(tmp_path / "run"))["mean_ttft_s"] == pytest.approx(result["mean_ttft_s"])


@pytest.mark.slow
def test_verify_compares_every_request(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "asaplab.cli", "prefill", "--model", "tiny-qwen3-moe", "--rps", "20", "--limit", "12",
         "--length-scale", "0.02", "--verify", "--json"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verify = json.loads(done.stdout)["verify"]
    assert verify["passed"]
    assert verify["requests"] == 12
    assert verify["max_relative_difference"] <= 1e-4
