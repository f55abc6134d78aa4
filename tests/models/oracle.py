"""The Hugging Face implementation of the same checkpoints, as it is and made truly float64."""

from __future__ import annotations

import types
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()


def load(directory: Path, dtype: torch.dtype) -> Any:
    """The transformers model; for float64 with every operation that it runs in float32 replaced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, experts_implementation="eager", attn_implementation="sdpa"
        ).eval()
    if dtype == torch.float64:
        for module in model.modules():
            for ending, forward in _TRUE_FLOAT64.items():
                if type(module).__name__.endswith(ending):
                    module.forward = types.MethodType(forward, module)
    return model


@torch.no_grad()
def logits(model: Any, ids: Tensor) -> Tensor:
    """Logits of the last position."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(ids[None], use_cache=False).logits[0, -1]


@torch.no_grad()
def keys_and_values(model: Any, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """K_hsd and V_hsd of every layer; where transformers caches latents, expanded by its own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        output = model(ids[None], use_cache=True)
    cache = output.cache if hasattr(output, "cache") else output.past_key_values
    pairs = []
    for layer, kept in zip(model.model.layers, cache.layers):
        keys, values = kept.keys, kept.values
        if hasattr(layer.self_attn, "expand_kv"):
            keys, values = layer.self_attn.expand_kv(keys, values)
        pairs.append((keys[0], values[0]))
    return pairs


def _rms_norm(self: Any, x: Tensor) -> Tensor:
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def _rotary(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    angles = position_ids[..., None].double() * self.inv_freq.double()
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling


def _deepseek_router(self: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = F.linear(x.view(-1, self.hidden_dim), self.weight.double())
    scores = logits.sigmoid()
    choice = scores + self.e_score_correction_bias.double()
    groups = choice.view(len(choice), self.num_group, -1)
    best = groups.topk(2, dim=-1).values.sum(-1).topk(self.topk_group, dim=-1).indices
    open_groups = torch.zeros(groups.shape[:2], dtype=torch.bool).scatter_(1, best, True)
    choice = groups.masked_fill(~open_groups[..., None], float("-inf")).flatten(1)
    ids = choice.topk(self.top_k, dim=-1).indices
    weights = scores.gather(1, ids)
    if self.norm_topk_prob:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return logits, weights * self.routed_scaling_factor, ids


def _qwen_router(self: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = F.linear(x.reshape(-1, self.hidden_dim), self.weight)
    weights, ids = logits.softmax(-1).topk(self.top_k, dim=-1)
    if self.norm_topk_prob:
        weights = weights / weights.sum(-1, keepdim=True)
    return logits, weights, ids


def _indexer(
    self: Any, x: Tensor, q_resid: Tensor, position_embeddings: Any, mask: Tensor, *_: Any, **kwargs: Any
) -> Tensor:
    cos, sin = (table[:, :, None, : self.qk_rope_head_dim // 2] for table in position_embeddings)

    def rotate(y: Tensor) -> Tensor:
        a, b = y[..., : self.qk_rope_head_dim].chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, y[..., self.qk_rope_head_dim :]], dim=-1)

    q = rotate(self.wq_b(q_resid).unflatten(-1, (self.n_heads, self.head_dim)))
    k = rotate(self.k_norm(self.wk(x))[:, :, None])[:, :, 0]
    if (cache := kwargs.get("cache")) is not None:
        k = cache.update_indexer(k, self.layer_idx)
    scores = F.relu(torch.einsum("bshd,btd->bsht", q, k) * self.head_dim**-0.5)
    weights = F.linear(x, self.weights_proj.weight.double()) * self.n_heads**-0.5
    scores = torch.einsum("bsh,bsht->bst", weights, scores)
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    else:
        scores = scores + mask
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., : self.index_topk].int()


_TRUE_FLOAT64 = {
    "Indexer": _indexer,
    "RMSNorm": _rms_norm,
    "RotaryEmbedding": _rotary,
    "TopkRouter": _deepseek_router,
    "TopKRouter": _qwen_router,
}
