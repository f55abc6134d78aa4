"""A request rate from a rule, so that systems are compared where queues and barriers matter and none was favoured."""

from __future__ import annotations

import numpy as np

from asaplab.core import Instance
from asaplab.engine.blueprint import draw
from asaplab.errors import require


def rate_at(load: float, tokens: np.ndarray, *, model: str, attention: tuple[int, int], experts: int) -> float:
    """Requests/s at which the devices of a paced ``default`` would be busy for a share ``load`` of the time.

    Counted from service times alone: a prompt that goes by itself takes one group's devices for its attention and all
    devices for its expert rows. Batches share fixed costs, so the busy share that comes out is somewhat lower.

    Args:
        load: share of the devices' time, between 0 and 1.
        tokens: lengths of the prompts.
        attention: (D, T) as ``deploy`` takes it, with ``experts`` the number E of MoE devices.

    Raises:
        InputError: a load that is no share, or an instance that does not fit the model.
    """
    require(0 < load < 1, f"load is {load}; give a share of the devices' time between 0 and 1")
    D, T = attention
    plan = draw(
        model, Instance(D=D, T=T, E=experts), "default", mode="paced", dtype="float32", max_batch_tokens=None, tp=None,
        pace=None,
    )  # fmt: skip
    assert plan.costs is not None
    config, devices = plan.checkpoint.config, plan.instance.E  # colocated: each holds both stages
    moe_layers = config.L - len(config.dense_layers)
    busy_s = [
        config.L * plan.instance.T * plan.costs.attention_s(n, n**2)
        + moe_layers * devices * plan.costs.moe_s(n * config.K / devices)
        for n in tokens.tolist()
    ]
    return load * devices / (plan.pace * float(np.mean(busy_s)))
