"""Checkpoints that must be read (shards, slices, fp8 blocks, half precision) and those that must be refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from asaplab.errors import InputError
from asaplab.models import Checkpoint, ModelConfig, Reference, policy
from asaplab.models.safetensors_files import SafetensorsFiles
from asaplab.superkernel import Linear, linear
from tests.models.test_parity import prompts
from tests.models.variants import FAMILIES

GATE = "model.layers.2.mlp.gate.weight"
UP = "model.layers.1.mlp.experts.3.up_proj.weight"


@pytest.fixture
def copy(written: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written["deepseek_v3"], tmp_path / "checkpoint"))


def save(directory: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def change(directory: Path, **entries: Any) -> None:
    path = directory / "config.json"
    raw = json.loads(path.read_text()) | entries
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))


def shard(directory: Path) -> None:
    """Splits the single file into three shards with an index, one of them holding a single tensor."""
    tensors = load_file(directory / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[:1], "b.safetensors": names[1:50], "c.safetensors": names[50:]}
    for file, own in parts.items():
        save_file({name: tensors[name] for name in own}, directory / file)
    weight_map = {name: file for file, own in parts.items() for name in own}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (directory / "model.safetensors").unlink()


def unpacked(weight: Linear) -> torch.Tensor:
    """What the identity becomes."""
    return linear(torch.eye(weight.shape[1], dtype=weight.dtype), weight).t()


def logits(directory: Path) -> torch.Tensor:
    checkpoint = Checkpoint(directory)
    checkpoint.validate()
    return Reference(checkpoint, policy("float32")).prefill(prompts((40,)))[0].logits_V


def test_shards_hold_the_same_model(written: dict[str, Path], copy: Path) -> None:
    shard(copy)
    assert torch.equal(logits(copy), logits(written["deepseek_v3"]))


@pytest.mark.parametrize("name", FAMILIES)
def test_ranks_read_slices_of_the_whole(written: dict[str, Path], name: str) -> None:
    checkpoint = Checkpoint(written[name])
    whole = checkpoint.attention_weights(0, 1, policy("float32"))
    ranks = [checkpoint.attention_weights(rank, 2, policy("float32")) for rank in range(2)]
    for layer, full in enumerate(whole.layers):
        parts = [unpacked(rank.layers[layer].attention.o_HA) for rank in ranks]
        assert torch.equal(torch.cat(parts, dim=1), unpacked(full.attention.o_HA))


def test_experts_are_read_by_range(written: dict[str, Path]) -> None:
    checkpoint, tensors = Checkpoint(written["qwen3_moe"]), load_file(written["qwen3_moe"] / "model.safetensors")
    gate_up, down = checkpoint.expert_weights(1, range(3, 5), policy("float64"))
    assert gate_up.shape == (2, 64, 64)
    assert torch.equal(gate_up[0, 32:], tensors[UP].double())
    assert torch.equal(down[1], tensors["model.layers.1.mlp.experts.4.down_proj.weight"].double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_stored_dtypes(copy: Path, dtype: torch.dtype) -> None:
    tensors = {name: value.to(dtype) for name, value in load_file(copy / "model.safetensors").items()}
    save(copy, tensors)
    half = logits(copy)
    save(copy, {name: value.float() for name, value in tensors.items()})
    assert torch.equal(half, logits(copy))


def test_fp8_blocks_are_multiplied_by_their_scales(copy: Path) -> None:
    """Weights are quantised by their largest value in blocks of 48 x 48, which divide none of the sizes."""
    block, quantised, restored = 48, {}, {}
    for name, value in load_file(copy / "model.safetensors").items():
        quantised[name] = restored[name] = value
        if not name.endswith("_proj.weight"):
            continue
        spread = torch.empty_like(value)
        scale = torch.empty(-(-value.shape[0] // block), -(-value.shape[1] // block))
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                part = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
                scale[i, j] = value[part].abs().max() / 448
                spread[part] = scale[i, j]
        quantised[name] = (value / spread).to(torch.float8_e4m3fn)
        quantised[name + "_scale_inv"] = scale
        restored[name] = quantised[name].float() * spread
    save(copy, restored)
    expected = {T: Checkpoint(copy).attention_weights(T - 1, T, policy("float32")) for T in (1, 2)}
    expected_logits = logits(copy)
    change(copy, quantization_config={"quant_method": "fp8", "weight_block_size": [block, block], "fmt": "e4m3"})
    save(copy, quantised)
    assert torch.equal(logits(copy), expected_logits)
    for T, weights in expected.items():  # slices of rows and columns meet the right scales
        read = Checkpoint(copy).attention_weights(T - 1, T, policy("float32"))
        for mine, other in zip(read.layers, weights.layers):
            assert torch.equal(unpacked(mine.attention.o_HA), unpacked(other.attention.o_HA))
            assert torch.equal(unpacked(mine.attention.q_up_AR), unpacked(other.attention.q_up_AR))


def damage(change_tensors: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change_tensors(tensors)
        save(directory, tensors)

    return apply


def truncate(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def lose_a_shard(directory: Path) -> None:
    shard(directory)
    (directory / "c.safetensors").unlink()


def break_index(directory: Path) -> None:
    (directory / "model.safetensors.index.json").write_text("[]")


def fp8_without_scales(directory: Path) -> None:
    change(directory, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    damage(lambda t: t.update({UP: t[UP].to(torch.float8_e4m3fn)}))(directory)


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no directory": (shutil.rmtree, "does not exist; give a Hugging Face checkpoint directory"),
    "no config": (lambda d: (d / "config.json").unlink(), "config.json does not exist"),
    "broken config": (lambda d: (d / "config.json").write_text("{"), "is not JSON"),
    "architecture": (lambda d: change(d, model_type="llama"), "architecture 'llama' is not supported"),
    "missing entry": (lambda d: change(d, kv_lora_rank=None), "has no entry 'kv_lora_rank'"),
    "activation": (lambda d: change(d, hidden_act="gelu"), "hidden_act is 'gelu'"),
    "attention bias": (lambda d: change(d, attention_bias=True), "attention_bias is True"),
    "rope type": (lambda d: change(d, rope_scaling={"type": "longrope"}), "rope type 'longrope'"),
    "groups": (lambda d: change(d, n_group=3), "groups must divide E_total"),
    "too few to choose": (lambda d: change(d, num_experts_per_tok=9), "chooses 9 of 8 experts"),
    "quantization": (lambda d: change(d, quantization_config={"quant_method": "awq"}), "quantization 'awq'"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "holds neither model.safetensors nor"),
    "truncated": (truncate, "truncated or not safetensors"),
    "lost shard": (lose_a_shard, "c.safetensors is named in model.safetensors.index.json but does not exist"),
    "broken index": (break_index, "no readable weight_map"),
    "missing tensor": (damage(lambda t: t.pop(UP)), f"tensor {UP} is missing"),
    "shape": (damage(lambda t: t.update({GATE: t[GATE][:-1].clone()})), f"tensor {GATE} has shape (15, 64)"),
    "fp8 alone": (damage(lambda t: t.update({UP: t[UP].to(torch.float8_e4m3fn)})), f"{UP} has dtype F8_E4M3"),
    "fp8 without scales": (fp8_without_scales, f"tensor {UP}_scale_inv is missing"),
    "int8": (damage(lambda t: t.update({UP: t[UP].to(torch.int8)})), f"tensor {UP} has dtype I8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_any_tensor_is_read(copy: Path, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SafetensorsFiles, "read", lambda *_: pytest.fail("read a tensor"))
    apply, sentence = REFUSED[case]
    apply(copy)
    with pytest.raises(InputError) as refused:
        Checkpoint(copy).validate()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [UP, GATE, "model.norm.weight"])
def test_not_finite_weights_are_refused_at_load(copy: Path, name: str, value: float) -> None:
    damage(lambda tensors: tensors[name].view(-1).__setitem__(3, value))(copy)
    Checkpoint(copy).validate()
    with pytest.raises(InputError, match=f"tensor {name} holds NaN or infinity"):
        Reference(Checkpoint(copy), policy("float32"))


def test_ranks_and_experts_that_do_not_fit(written: dict[str, Path]) -> None:
    v3, qwen3 = (ModelConfig.load(written[name]) for name in ("deepseek_v3", "qwen3_moe"))
    for T in (1, 2, 4):
        v3.check_ranks(T)
        qwen3.check_ranks(T)
    with pytest.raises(InputError, match="T is 3 but the model has 4 heads"):
        v3.check_ranks(3)
    with pytest.raises(InputError, match="T is 8 but"):
        Checkpoint(written["qwen3_moe"]).attention_weights(0, 8, policy("float32"))
    v3.check_experts(16)
    with pytest.raises(InputError, match="E is 17 but the model has 16 experts"):
        v3.check_experts(17)


def test_policies() -> None:
    assert policy("float64").high == torch.float64
    assert policy("bfloat16").high == torch.float32
    with pytest.raises(InputError, match="dtype 'int8' is not known"):
        policy("int8")
