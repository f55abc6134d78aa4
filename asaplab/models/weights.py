"""The weights of one attention device, and the names and shapes of all tensors of a checkpoint.

Weights that read the same input are stacked, so that each input takes one GEMM; those of linear layers are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from asaplab.models.config import ModelConfig
from asaplab.superkernel import Linear


@dataclass(frozen=True, kw_only=True, eq=False)
class GqaWeights:
    """Grouped-query attention of one rank: its query heads, the KV heads they read, its columns of the output."""

    qkv_AH: Linear
    q_norm_d: Tensor
    k_norm_d: Tensor
    o_HA: Linear


@dataclass(frozen=True, kw_only=True, eq=False)
class IndexerWeights:
    """DeepSeek-V3.2's lightning indexer, the same on every rank."""

    q_AR: Linear
    k_dH: Linear
    k_norm_d: Tensor
    k_bias_d: Tensor
    head_hH: Linear


@dataclass(frozen=True, kw_only=True, eq=False)
class MlaWeights:
    """Multi-head latent attention of one rank; the low-rank steps are the same on every rank."""

    down_AH: Linear  # rows: query latent (or this rank's queries when there is none), KV latent, rotary key
    q_norm_R: Tensor | None
    q_up_AR: Linear | None
    kv_norm_R: Tensor
    kv_up_AR: Linear
    o_HA: Linear
    indexer: IndexerWeights | None


@dataclass(frozen=True, kw_only=True, eq=False)
class MlpWeights:
    """A dense layer or a shared expert."""

    gate_up_2IH: Linear
    down_HI: Linear


@dataclass(frozen=True, kw_only=True, eq=False)
class RouterWeights:
    """A MoE layer without its routed experts."""

    gate_EH: Linear
    bias_E: Tensor | None
    shared: MlpWeights | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerWeights:
    input_norm_H: Tensor
    attention: GqaWeights | MlaWeights
    post_norm_H: Tensor
    mlp: MlpWeights | RouterWeights


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionWeights:
    """Everything an attention device holds: its share of the heads, and all that is not a routed expert."""

    embedding_VH: Tensor
    layers: tuple[LayerWeights, ...]
    norm_H: Tensor
    head_VH: Linear


def layer_name(layer: int, rest: str) -> str:
    return f"model.layers.{layer}.{rest}.weight"


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of this model holds, with its shape."""
    H, V = config.H, config.vocab
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,)}
    if not config.tied:
        shapes["lm_head.weight"] = (V, H)
    for layer in range(config.L):
        parts: dict[str, tuple[int, ...]] = {"input_layernorm": (H,), "post_attention_layernorm": (H,)}
        parts |= {f"self_attn.{k}": v for k, v in _attention_shapes(config).items()}
        if config.is_moe(layer):
            parts["mlp.gate"] = (config.E_total, H)
            for e in range(config.E_total):
                parts |= _mlp_shapes(f"mlp.experts.{e}", H, config.I)
            if config.shared_I:
                parts |= _mlp_shapes("mlp.shared_experts", H, config.shared_I)
        else:
            parts |= _mlp_shapes("mlp", H, config.dense_I)
        shapes |= {layer_name(layer, name): shape for name, shape in parts.items()}
        if config.mla and config.is_moe(layer):
            shapes[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"] = (config.E_total,)
        if config.indexer:
            shapes[f"model.layers.{layer}.self_attn.indexer.k_norm.bias"] = (config.indexer.dim,)
    return shapes


def _mlp_shapes(prefix: str, H: int, inner: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}.gate_proj": (inner, H),
        f"{prefix}.up_proj": (inner, H),
        f"{prefix}.down_proj": (H, inner),
    }


def _attention_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    H, heads, d, dv = config.H, config.heads, config.head_dim, config.v_dim
    mla, indexer = config.mla, config.indexer
    shapes: dict[str, tuple[int, ...]] = {"o_proj": (H, heads * dv)}
    if mla is None:
        kv = config.kv_heads * d
        return shapes | {"q_proj": (heads * d, H), "k_proj": (kv, H), "v_proj": (kv, H), "q_norm": (d,), "k_norm": (d,)}
    shapes["kv_a_proj_with_mqa"] = (mla.kv_rank + mla.rope, H)
    shapes["kv_a_layernorm"] = (mla.kv_rank,)
    shapes["kv_b_proj"] = (heads * (mla.nope + dv), mla.kv_rank)
    if mla.q_rank is None:
        shapes["q_proj"] = (heads * d, H)
    else:
        shapes |= {"q_a_proj": (mla.q_rank, H), "q_a_layernorm": (mla.q_rank,), "q_b_proj": (heads * d, mla.q_rank)}
    if indexer and mla.q_rank:
        shapes["indexer.wq_b"] = (indexer.heads * indexer.dim, mla.q_rank)
        shapes["indexer.wk"] = (indexer.dim, H)
        shapes["indexer.k_norm"] = (indexer.dim,)
        shapes["indexer.weights_proj"] = (indexer.heads, H)
    return shapes
