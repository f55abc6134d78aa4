"""The named checkpoints, and where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from asaplab.errors import InputError
from asaplab.models import Checkpoint, Reference, policy, resolve, tokenize, write
from asaplab.models.tiny import CONFIGS
from tests.models import oracle

TINY = ("tiny-deepseek-v3", "tiny-deepseek-v32", "tiny-qwen3-moe")


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("name", TINY)
def test_the_same_bytes_every_time(name: str, tmp_path: Path) -> None:
    one, two = write(name, tmp_path / "one"), resolve(name)
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (one / file).read_bytes() == (two / file).read_bytes()


def test_written_once_and_whole(cache_home: Path) -> None:
    first = resolve("tiny-qwen3-moe")
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert resolve("tiny-qwen3-moe") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert [path.name for path in (cache_home / "asaplab").iterdir()] == [first.name]


def test_a_directory_is_itself(tmp_path: Path) -> None:
    assert resolve(str(tmp_path)) == tmp_path


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a directory nor a known name"):
        resolve("llama-7b")
    with pytest.raises(InputError, match="checkpoint 'llama-7b' is not known"):
        write("llama-7b", tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is not an empty directory"):
        write("tiny-qwen3-moe", tmp_path)


@pytest.mark.parametrize("name", TINY)
def test_routing_and_logits_mean_something(name: str) -> None:
    """Every expert is used, none by all; different prompts lead to different first tokens."""
    reference = Reference(Checkpoint(resolve(name)), policy("float32"))
    generator = torch.Generator().manual_seed(3)
    sequences = [torch.randint(0, 512, (40,), generator=generator) for _ in range(16)]
    stage, used = reference.stages[0], []
    route = stage.route
    stage.route = lambda layer, h: (used.append((r := route(layer, h)).expert_ids_nK), r)[1]  # type: ignore[method-assign]
    results = reference.prefill(sequences)
    assert len({result.first_token for result in results}) >= 8
    assert min(float(result.logits_V.std()) for result in results) > 0.5
    for ids_nK in used:
        share = torch.bincount(ids_nK.flatten(), minlength=16) / len(ids_nK)
        assert float(share.min()) > 0.02
        assert float(share.max()) < 0.9


def test_text_prompts() -> None:
    directory = resolve("tiny-qwen3-moe")
    ids = tokenize(directory, "Grüße!")
    assert ids.dtype == torch.int64
    assert len(ids) == len("Grüße!".encode())
    assert int(ids.max()) < CONFIGS["tiny-qwen3-moe"]["vocab_size"]


def test_text_prompts_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give token ids instead of text"):
        tokenize(tmp_path, "hello")
    with pytest.raises(InputError, match="has no tokens"):
        tokenize(resolve("tiny-qwen3-moe"), "")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="is not a tokenizer"):
        tokenize(tmp_path, "hello")


@pytest.mark.slow
def test_bench_moe_agrees_with_transformers() -> None:
    directory = resolve("bench-moe")
    assert sum(path.stat().st_size for path in directory.iterdir()) < 1.5e9
    ids = torch.randint(0, 8192, (150,), generator=torch.Generator().manual_seed(1))
    mine = Reference(Checkpoint(directory), policy("float32")).prefill([ids])[0]
    expected = oracle.logits(oracle.load(directory, torch.float32), ids)
    assert float((mine.logits_V - expected).abs().max() / expected.abs().max()) <= 1e-4
    assert mine.first_token == int(expected.argmax())
