"""The models under test: the named tiny checkpoints and variants of them."""

from __future__ import annotations

from typing import Any

from asaplab.models.tiny import CONFIGS

_V3, _QWEN3 = CONFIGS["tiny-deepseek-v3"], CONFIGS["tiny-qwen3-moe"]

VARIANTS: dict[str, dict[str, Any]] = {
    "deepseek_v3": _V3,
    # no yarn, no query latent, half-split rotation, one expert group as in Kimi-K2, unnormalised weights
    "deepseek_v3_plain": {key: value for key, value in _V3.items() if key != "rope_scaling"}
    | {"q_lora_rank": None, "n_group": 1, "topk_group": 1, "rope_interleave": False, "norm_topk_prob": False},
    "deepseek_v32": CONFIGS["tiny-deepseek-v32"],
    # the first block of queries sees no more keys than the indexer may choose
    "deepseek_v32_wide": CONFIGS["tiny-deepseek-v32"] | {"index_topk": 150},
    "qwen3_moe": _QWEN3,
    # a dense layer, unnormalised weights, tied head, yarn, in the newer spelling of the rotary parameters
    "qwen3_moe_mixed": {key: value for key, value in _QWEN3.items() if key != "rope_theta"}
    | {
        "mlp_only_layers": [1],
        "norm_topk_prob": False,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 2.0,
            "original_max_position_embeddings": 32768,
        },
    },
}
FAMILIES = ("deepseek_v3", "deepseek_v32", "qwen3_moe")
