"""What config.json says about a model, in the words of Table 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from asaplab.errors import InputError
from asaplab.models.rope import Rope, rope_from

Family = Literal["deepseek_v3", "deepseek_v32", "qwen3_moe"]
_FAMILIES: dict[str, Family] = {
    "deepseek_v3": "deepseek_v3",
    "kimi_k2": "deepseek_v3",  # the same class with other numbers
    "deepseek_v32": "deepseek_v32",
    "qwen3_moe": "qwen3_moe",
}


@dataclass(frozen=True, kw_only=True)
class Mla:
    """Sizes of multi-head latent attention."""

    q_rank: int | None  # None: queries without a low-rank step
    kv_rank: int
    nope: int  # query and key dimensions a head without rotation
    rope: int
    v: int
    interleaved: bool = True  # rotary pairs are neighbours (2i, 2i + 1)


@dataclass(frozen=True, kw_only=True)
class Indexer:
    """Sizes of DeepSeek-V3.2's lightning indexer."""

    heads: int
    dim: int
    top_k: int


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A model's numbers. ``ModelConfig.load`` reads them from a checkpoint directory."""

    family: Family
    H: int  # hidden size
    L: int  # layers
    K: int  # experts chosen for a token
    E_total: int  # routed experts
    I: int  # noqa: E741  intermediate size of an expert
    dense_I: int  # intermediate size of a dense layer
    heads: int
    kv_heads: int
    head_dim: int  # query and key dimensions a head
    v_dim: int
    vocab: int
    eps: float
    rope: Rope
    softmax_scale: float
    positions: int  # longest sequence
    dense_layers: frozenset[int]
    mla: Mla | None = None
    indexer: Indexer | None = None
    shared_I: int = 0  # intermediate size of the shared expert; 0: none
    groups: int = 1  # router: expert groups, and how many of them a token may use
    top_groups: int = 1
    scale: float = 1.0  # router: routed scaling factor
    normalise: bool = True  # router: weights of a token sum to 1 before the scale
    tied: bool = False  # the LM head is the embedding
    fp8_block: tuple[int, int] | None = None  # rows and columns that share a scale in an fp8 checkpoint

    def __post_init__(self) -> None:
        counts = ("H", "L", "K", "E_total", "I", "dense_I", "heads", "kv_heads", "head_dim", "v_dim", "vocab", "groups")
        for name in counts:
            if getattr(self, name) < 1:
                raise InputError(f"config.json: {name} is {getattr(self, name)}; it must be at least 1")
        for whole, part in (("heads", "kv_heads"), ("E_total", "groups")):
            if getattr(self, whole) % getattr(self, part):
                raise InputError(
                    f"config.json: {whole} is {getattr(self, whole)} and {part} is {getattr(self, part)}; "
                    f"{part} must divide {whole}"
                )
        choices = self.E_total // self.groups * self.top_groups
        if self.top_groups > self.groups or choices < self.K:
            raise InputError(
                f"config.json: a token chooses {self.K} of {choices} experts in {self.top_groups} of {self.groups} "
                "groups; it must leave enough to choose from"
            )

    def is_moe(self, layer: int) -> bool:
        return layer not in self.dense_layers

    @property
    def moe_layers(self) -> tuple[int, ...]:
        return tuple(layer for layer in range(self.L) if self.is_moe(layer))

    def check_ranks(self, T: int) -> None:
        """Raises InputError unless T ranks can share the heads (beyond the KV heads, ranks hold copies)."""
        if T < 1 or self.heads % T:
            raise InputError(f"T is {T} but the model has {self.heads} heads; choose a T that divides them")
        if self.mla is None and self.kv_heads % T and T % self.kv_heads:
            raise InputError(
                f"T is {T} but the model has {self.kv_heads} KV heads; choose a T that divides them or a multiple"
            )

    def check_experts(self, E: int) -> None:
        """Raises InputError unless E MoE devices can each hold at least one expert."""
        if not 1 <= E <= self.E_total:
            raise InputError(f"E is {E} but the model has {self.E_total} experts; choose 1 <= E <= {self.E_total}")

    @classmethod
    def load(cls, directory: str | Path) -> ModelConfig:
        """Reads ``directory/config.json``.

        Raises:
            InputError: the directory or file is missing, or it describes a model that is not supported.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise InputError(f"model directory {directory} does not exist; give a Hugging Face checkpoint directory")
        path = directory / "config.json"
        if not path.is_file():
            raise InputError(f"{path} does not exist; a checkpoint directory holds config.json beside its safetensors")
        try:
            raw = json.loads(path.read_text())
        except (UnicodeDecodeError, json.JSONDecodeError) as broken:
            raise InputError(f"{path} is not JSON ({broken}); download it again") from None
        try:
            return _read(raw)
        except KeyError as missing:
            raise InputError(
                f"{path} has no entry {missing}; it is needed for a {raw.get('model_type')} model"
            ) from None


def _read(raw: dict[str, Any]) -> ModelConfig:
    kind = raw.get("model_type")
    if kind not in _FAMILIES:
        raise InputError(
            f"config.json: architecture {kind!r} is not supported; choose a model of type {', '.join(_FAMILIES)}"
        )
    _refuse_variants(raw)
    common: dict[str, Any] = {
        "H": raw["hidden_size"],
        "L": raw["num_hidden_layers"],
        "K": raw["num_experts_per_tok"],
        "I": raw["moe_intermediate_size"],
        "dense_I": raw["intermediate_size"],
        "heads": raw["num_attention_heads"],
        "vocab": raw["vocab_size"],
        "eps": raw.get("rms_norm_eps", 1e-6),
        "positions": raw.get("max_position_embeddings", 4096),
        "tied": raw.get("tie_word_embeddings", False),
        "fp8_block": _fp8_block(raw),
    }
    return _qwen3(raw, common) if kind == "qwen3_moe" else _deepseek(raw, common, _FAMILIES[kind])


def _qwen3(raw: dict[str, Any], common: dict[str, Any]) -> ModelConfig:
    head_dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    step, only_dense = raw.get("decoder_sparse_step", 1), raw.get("mlp_only_layers") or ()
    E_total = raw["num_experts"] if "num_experts" in raw else raw["num_local_experts"]
    return ModelConfig(
        family="qwen3_moe",
        E_total=E_total,
        kv_heads=raw["num_key_value_heads"],
        head_dim=head_dim,
        v_dim=head_dim,
        rope=rope_from(raw, head_dim, default_theta=10_000.0),
        softmax_scale=head_dim**-0.5,
        dense_layers=frozenset(i for i in range(common["L"]) if i in only_dense or (i + 1) % step),
        normalise=raw.get("norm_topk_prob", False),
        **common,
    )


def _deepseek(raw: dict[str, Any], common: dict[str, Any], family: Family) -> ModelConfig:
    mla = Mla(
        q_rank=raw.get("q_lora_rank"),
        kv_rank=raw["kv_lora_rank"],
        nope=raw["qk_nope_head_dim"],
        rope=raw["qk_rope_head_dim"],
        v=raw["v_head_dim"],
        interleaved=raw.get("rope_interleave", True) or family == "deepseek_v32",
    )
    indexer = None
    if family == "deepseek_v32":
        if mla.q_rank is None:
            raise KeyError("q_lora_rank")  # the indexer reads the query latent
        indexer = Indexer(heads=raw["index_n_heads"], dim=raw["index_head_dim"], top_k=raw["index_topk"])
    rope = rope_from(raw, mla.rope, default_theta=10_000.0)
    return ModelConfig(
        family=family,
        E_total=raw["n_routed_experts"],
        kv_heads=raw["num_attention_heads"],
        head_dim=mla.nope + mla.rope,
        v_dim=mla.v,
        rope=rope,
        softmax_scale=(mla.nope + mla.rope) ** -0.5 * rope.softmax_factor,
        dense_layers=frozenset(range(min(raw.get("first_k_dense_replace", 3), common["L"]))),
        mla=mla,
        indexer=indexer,
        shared_I=raw["moe_intermediate_size"] * (raw.get("n_shared_experts") or 0),
        groups=raw.get("n_group") or 1,
        top_groups=raw.get("topk_group") or 1,
        scale=raw.get("routed_scaling_factor", 1.0),
        normalise=raw.get("norm_topk_prob", True),
        **common,
    )


def _refuse_variants(raw: dict[str, Any]) -> None:
    """Variants of the supported architectures that no released model of the families uses."""
    allowed = {
        "attention_bias": False,
        "hidden_act": "silu",
        "use_sliding_window": False,
        "moe_layer_freq": 1,
    }
    for key, value in allowed.items():
        if raw.get(key, value) != value:
            raise InputError(f"config.json: {key} is {raw[key]!r} but only {value!r} is supported; use another model")


def _fp8_block(raw: dict[str, Any]) -> tuple[int, int] | None:
    quantization = raw.get("quantization_config")
    if not quantization:
        return None
    method, block = quantization.get("quant_method"), quantization.get("weight_block_size")
    if method != "fp8" or not block:
        raise InputError(
            f"config.json: quantization {method!r} is not supported; use an fp8 checkpoint with weight_block_size, "
            "or an unquantised one"
        )
    return int(block[0]), int(block[1])
