"""Deterministic checkpoints in the Hugging Face format: two tiny ones to run anywhere, one to measure on.

Weights are random, scaled by their fan-in, so that activations keep their size and routing and logits mean something.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from asaplab.errors import InputError
from asaplab.models.config import ModelConfig
from asaplab.models.text import write_byte_tokenizer
from asaplab.models.weights import tensor_shapes

_FORMAT = 1  # part of the cache key: raise it when the weights below change
_COMMON = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "float32",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "use_cache": True,
    "num_experts_per_tok": 4,
    "vocab_size": 512,
}
_QWEN3 = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "decoder_sparse_step": 1}
_TINY_DEEPSEEK: dict[str, Any] = _COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "first_k_dense_replace": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "routed_scaling_factor": 2.5,
    "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 0,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}
CONFIGS: dict[str, dict[str, Any]] = {
    "tiny-deepseek-v3": _TINY_DEEPSEEK,
    "tiny-deepseek-v32": _TINY_DEEPSEEK
    | {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "index_n_heads": 8,
        "index_head_dim": 32,
        "index_topk": 64,
    },
    "tiny-qwen3-moe": _COMMON
    | _QWEN3
    | {
        "hidden_size": 64,
        "intermediate_size": 128,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 16,
        "mlp_only_layers": [],
        "max_position_embeddings": 65536,
        "rope_theta": 1000000.0,
    },
    # attention and expert work about equal at prompts of a few hundred tokens
    "bench-moe": _COMMON
    | _QWEN3
    | {
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "moe_intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 32,
        "num_experts_per_tok": 8,
        "mlp_only_layers": [],
        "max_position_embeddings": 65536,
        "rope_theta": 1000000.0,
        "vocab_size": 8192,
    },
}


def write(name: str, directory: str | Path) -> Path:
    """Writes the checkpoint ``name`` (config.json, model.safetensors, tokenizer.json) and returns the directory.

    Raises:
        InputError: there is no checkpoint of that name, or the directory is not empty.
    """
    if name not in CONFIGS:
        raise InputError(f"checkpoint {name!r} is not known; choose one of {', '.join(CONFIGS)}")
    directory = Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InputError(f"{directory} is not an empty directory; give a new one for the checkpoint")
    directory.mkdir(parents=True, exist_ok=True)
    write_config(CONFIGS[name], directory)
    return directory


def write_config(raw: dict[str, Any], directory: Path) -> None:
    """Writes a seeded checkpoint for any supported config.json into an existing directory."""
    (directory / "config.json").write_text(json.dumps(raw, indent=2))
    config = ModelConfig.load(directory)
    generator = torch.Generator().manual_seed(20260101)
    tensors = {name: _random(name, shape, generator) for name, shape in tensor_shapes(config).items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    write_byte_tokenizer(directory / "tokenizer.json")


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    value = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return 0.1 * value
    if len(shape) == 1:
        return 1 + 0.1 * value  # norm weights
    return value if "embed_tokens" in name else value * shape[-1] ** -0.5


def resolve(model: str) -> Path:
    """The directory of a model: ``model`` itself, or the checkpoint of that name, written once into the user's cache.

    Raises:
        InputError: ``model`` is neither a directory nor a known name.
    """
    if Path(model).is_dir():
        return Path(model)
    if model not in CONFIGS:
        raise InputError(
            f"model {model!r} is neither a directory nor a known name; give a Hugging Face checkpoint directory or one "
            f"of {', '.join(CONFIGS)}"
        )
    key = hashlib.sha256(json.dumps([_FORMAT, CONFIGS[model]], sort_keys=True).encode()).hexdigest()[:12]
    target = _cache_directory() / f"{model}-{key}"
    if not target.exists():
        partial = Path(tempfile.mkdtemp(prefix=f".{model}-", dir=target.parent))
        try:
            write(model, partial)
            partial.rename(target)
        except OSError:
            if not target.exists():  # else another process was first, with the same bytes
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _cache_directory() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(root) if root else Path.home() / ".cache") / "asaplab"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        writable = os.access(cache, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        cache = Path(tempfile.gettempdir()) / f"asaplab-{os.getuid()}"
        cache.mkdir(parents=True, exist_ok=True)
    return cache
