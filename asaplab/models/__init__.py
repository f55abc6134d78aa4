"""MoE transformers cut at the attention/expert boundary, and the uncut forward pass beside them."""

from asaplab.models.attention_stage import AttentionStage, Routed
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.config import ModelConfig
from asaplab.models.context import Context
from asaplab.models.kv_cache import KVCache
from asaplab.models.policy import Policy, policy
from asaplab.models.reference import Prefill, Reference, sum_in_rank_order
from asaplab.models.text import tokenize
from asaplab.models.tiny import resolve, write

__all__ = [
    "AttentionStage",
    "Checkpoint",
    "Context",
    "KVCache",
    "ModelConfig",
    "Policy",
    "Prefill",
    "Reference",
    "Routed",
    "policy",
    "resolve",
    "sum_in_rank_order",
    "tokenize",
    "write",
]
