"""A Hugging Face checkpoint directory, read by role: an attention rank's share, or some experts of a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from asaplab.models.config import ModelConfig
from asaplab.models.policy import Policy
from asaplab.models.safetensors_files import SafetensorsFiles
from asaplab.models.weights import (
    AttentionWeights,
    GqaWeights,
    IndexerWeights,
    LayerWeights,
    MlaWeights,
    MlpWeights,
    RouterWeights,
    layer_name,
    tensor_shapes,
)
from asaplab.superkernel import Linear, pack_linear

_ALL = slice(None)


class Checkpoint:
    """config.json and safetensors of a model. Opening reads headers; tensors are read when asked for.

    Raises:
        InputError: the directory, config.json or the weights are missing, broken or not supported.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.config = ModelConfig.load(self.directory)
        self._files = SafetensorsFiles(self.directory, self.config.fp8_block)

    def validate(self) -> None:
        """Checks every tensor's presence, shape and dtype from the headers, before any device starts.

        Raises:
            InputError: names the first tensor that does not fit config.json.
        """
        self._files.check(tensor_shapes(self.config))

    def expert_weights(self, layer: int, experts: range, policy: Policy) -> tuple[Tensor, Tensor]:
        """``(gate_up_e2IH, down_eHI)`` of some experts of a layer: the gate's I rows, then the up projection's.

        Raises:
            InputError: a tensor is missing or holds NaN or infinity.
        """
        e, H, inner = len(experts), self.config.H, self.config.I
        gate_up_e2IH = torch.empty(e, 2 * inner, H, dtype=policy.dtype)
        down_eHI = torch.empty(e, H, inner, dtype=policy.dtype)
        for i, expert in enumerate(experts):
            name = f"mlp.experts.{expert}."
            gate_up_e2IH[i, :inner] = self._read(layer, name + "gate_proj", policy.dtype)
            gate_up_e2IH[i, inner:] = self._read(layer, name + "up_proj", policy.dtype)
            down_eHI[i] = self._read(layer, name + "down_proj", policy.dtype)
        return gate_up_e2IH, down_eHI

    def expert_layers(self, experts: range, policy: Policy) -> Mapping[int, tuple[Tensor, Tensor]]:
        """What ``superkernel.pack`` takes: the experts of all MoE layers, read one layer at a time."""
        return ExpertLayers(self, experts, policy)

    def attention_weights(self, rank: int, T: int, policy: Policy) -> AttentionWeights:
        """What rank ``rank`` of ``T`` holds: its heads of every layer, and all but the routed experts.

        Raises:
            InputError: T does not fit the heads; a tensor is missing or holds NaN or infinity.
        """
        self.config.check_ranks(T)
        embedding_VH = self._files.read("model.embed_tokens.weight", policy.dtype)
        return AttentionWeights(
            embedding_VH=embedding_VH,
            layers=tuple(self._layer(layer, rank, T, policy) for layer in range(self.config.L)),
            norm_H=self._files.read("model.norm.weight", policy.dtype),
            head_VH=pack_linear(embedding_VH if self.config.tied else self._files.read("lm_head.weight", policy.dtype)),
        )

    def _read(self, layer: int, rest: str, dtype: torch.dtype, rows: slice = _ALL, columns: slice = _ALL) -> Tensor:
        return self._files.read(layer_name(layer, rest), dtype, rows, columns)

    def _linear(self, layer: int, rest: str, dtype: torch.dtype, rows: slice = _ALL, columns: slice = _ALL) -> Linear:
        return pack_linear(self._read(layer, rest, dtype, rows, columns))

    def _layer(self, layer: int, rank: int, T: int, policy: Policy) -> LayerWeights:
        attention = self._mla if self.config.mla else self._gqa
        return LayerWeights(
            input_norm_H=self._read(layer, "input_layernorm", policy.dtype),
            attention=attention(layer, rank, T, policy),
            post_norm_H=self._read(layer, "post_attention_layernorm", policy.dtype),
            mlp=self._router(layer, policy) if self.config.is_moe(layer) else self._mlp(layer, "mlp", policy.dtype),
        )

    def _gqa(self, layer: int, rank: int, T: int, policy: Policy) -> GqaWeights:
        config, name, dtype = self.config, "self_attn.", policy.dtype
        d, queries = config.head_dim, rank_heads(config, rank, T)
        keys = rank_kv_heads(config, rank, T)
        q_rows, kv_rows = _times(queries, d), _times(keys, d)
        stacked = [self._read(layer, name + "q_proj", dtype, q_rows)]
        stacked += [self._read(layer, name + part, dtype, kv_rows) for part in ("k_proj", "v_proj")]
        return GqaWeights(
            qkv_AH=pack_linear(torch.cat(stacked)),
            q_norm_d=self._read(layer, name + "q_norm", dtype),
            k_norm_d=self._read(layer, name + "k_norm", dtype),
            o_HA=self._linear(layer, name + "o_proj", dtype, columns=q_rows),
        )

    def _mla(self, layer: int, rank: int, T: int, policy: Policy) -> MlaWeights:
        config, mla, name, dtype = self.config, self.config.mla, "self_attn.", policy.dtype
        assert mla is not None
        heads = rank_heads(config, rank, T)
        q_rows, low_rank = _times(heads, config.head_dim), mla.q_rank is not None
        query = self._read(layer, name + ("q_a_proj" if low_rank else "q_proj"), dtype, _ALL if low_rank else q_rows)
        return MlaWeights(
            down_AH=pack_linear(torch.cat([query, self._read(layer, name + "kv_a_proj_with_mqa", dtype)])),
            q_norm_R=self._read(layer, name + "q_a_layernorm", dtype) if low_rank else None,
            q_up_AR=self._linear(layer, name + "q_b_proj", dtype, q_rows) if low_rank else None,
            kv_norm_R=self._read(layer, name + "kv_a_layernorm", dtype),
            kv_up_AR=self._linear(layer, name + "kv_b_proj", dtype, _times(heads, mla.nope + mla.v)),
            o_HA=self._linear(layer, name + "o_proj", dtype, columns=_times(heads, mla.v)),
            indexer=self._indexer(layer, policy) if config.indexer else None,
        )

    def _indexer(self, layer: int, policy: Policy) -> IndexerWeights:
        name, dtype = "self_attn.indexer.", policy.dtype
        return IndexerWeights(
            q_AR=self._linear(layer, name + "wq_b", dtype),
            k_dH=self._linear(layer, name + "wk", dtype),
            k_norm_d=self._read(layer, name + "k_norm", dtype),
            k_bias_d=self._files.read(f"model.layers.{layer}.{name}k_norm.bias", dtype),
            head_hH=self._linear(layer, name + "weights_proj", policy.high),
        )

    def _router(self, layer: int, policy: Policy) -> RouterWeights:
        # DeepSeek routes in high precision, with a bias on the choice; Qwen3 routes in the model's dtype
        deepseek = self.config.mla is not None
        bias_name = f"model.layers.{layer}.mlp.gate.e_score_correction_bias"
        return RouterWeights(
            gate_EH=self._linear(layer, "mlp.gate", policy.high if deepseek else policy.dtype),
            bias_E=self._files.read(bias_name, policy.high) if deepseek else None,
            shared=self._mlp(layer, "mlp.shared_experts", policy.dtype) if self.config.shared_I else None,
        )

    def _mlp(self, layer: int, name: str, dtype: torch.dtype) -> MlpWeights:
        gate_up = [self._read(layer, f"{name}.{part}", dtype) for part in ("gate_proj", "up_proj")]
        return MlpWeights(
            gate_up_2IH=pack_linear(torch.cat(gate_up)), down_HI=self._linear(layer, f"{name}.down_proj", dtype)
        )


class ExpertLayers(Mapping[int, tuple[Tensor, Tensor]]):
    """``{layer: (gate_up_e2IH, down_eHI)}`` of some experts, each layer read when it is looked up."""

    def __init__(self, checkpoint: Checkpoint, experts: range, policy: Policy) -> None:
        self._checkpoint, self._experts, self._policy = checkpoint, experts, policy

    def __getitem__(self, layer: int) -> tuple[Tensor, Tensor]:
        return self._checkpoint.expert_weights(layer, self._experts, self._policy)

    def __iter__(self) -> Iterator[int]:
        return iter(self._checkpoint.config.moe_layers)

    def __len__(self) -> int:
        return len(self._checkpoint.config.moe_layers)


def rank_heads(config: ModelConfig, rank: int, T: int) -> range:
    """The query heads of a rank."""
    share = config.heads // T
    return range(rank * share, (rank + 1) * share)


def rank_kv_heads(config: ModelConfig, rank: int, T: int) -> range:
    """The KV heads that a rank's query heads read; ranks beyond the KV heads hold copies."""
    heads, group = rank_heads(config, rank, T), config.heads // config.kv_heads
    return range(heads[0] // group, heads[-1] // group + 1)


def _times(heads: range, d: int) -> slice:
    return slice(heads.start * d, heads.stop * d)
