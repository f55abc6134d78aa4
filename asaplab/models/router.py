"""Routers: which K experts a token goes to, and with what weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from asaplab.models.config import ModelConfig
from asaplab.models.policy import Policy
from asaplab.models.weights import RouterWeights
from asaplab.superkernel import linear, sigmoid


def sigmoid_grouped(x_nH: Tensor, weights: RouterWeights, config: ModelConfig, policy: Policy) -> tuple[Tensor, Tensor]:
    """DeepSeek-V3: scores are sigmoids; a bias steers the choice only; a token may use ``top_groups`` expert groups.

    Returns:
        expert ids (int64) and weights in ``high``, both n x K.
    """
    n = x_nH.shape[0]
    score_nE = sigmoid(linear(x_nH.to(policy.high), weights.gate_EH))
    choice_nE = score_nE if weights.bias_E is None else score_nE + weights.bias_E
    if config.groups > 1:
        choice_nge = choice_nE.view(n, config.groups, config.E_total // config.groups)
        group_ng = choice_nge.topk(2, dim=-1).values.sum(-1)
        closed_ng = torch.ones_like(group_ng, dtype=torch.bool)
        closed_ng.scatter_(1, group_ng.topk(config.top_groups, dim=-1).indices, False)
        choice_nE = choice_nge.masked_fill(closed_ng[..., None], float("-inf")).flatten(1)
    expert_ids_nK = choice_nE.topk(config.K, dim=-1).indices
    weights_nK = score_nE.gather(1, expert_ids_nK)
    if config.normalise:
        weights_nK = weights_nK / (weights_nK.sum(-1, keepdim=True) + 1e-20)
    return expert_ids_nK, weights_nK * config.scale


def softmax_top_k(x_nH: Tensor, weights: RouterWeights, config: ModelConfig, policy: Policy) -> tuple[Tensor, Tensor]:
    """Qwen3-MoE: softmax over all experts, the K largest, renormalised if the model says so."""
    share_nE = torch.softmax(linear(x_nH, weights.gate_EH).to(policy.high), dim=-1)
    weights_nK, expert_ids_nK = share_nE.topk(config.K, dim=-1)
    if config.normalise:
        weights_nK = weights_nK / weights_nK.sum(-1, keepdim=True)
    return expert_ids_nK, weights_nK.to(policy.dtype)


Router = Callable[[Tensor, RouterWeights, ModelConfig, Policy], tuple[Tensor, Tensor]]
ROUTERS: dict[str, Router] = {
    "deepseek_v3": sigmoid_grouped,
    "deepseek_v32": sigmoid_grouped,
    "qwen3_moe": softmax_top_k,
}
