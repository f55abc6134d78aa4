"""The rate that no schedule can exceed: devices over device-seconds a request, fixed costs spread over S tokens."""

from __future__ import annotations

import numpy as np

from asaplab.core import Instance, System, Workload
from asaplab.profiles.profile import Profile, instance_costs
from asaplab.profiles.shapes import Shape


def roofline_rps(
    system: System, model: Shape, profile: Profile, instance: Instance, workload: Workload
) -> tuple[float, dict[str, float]]:
    """Requests a second that the devices could serve without ever waiting, and device-seconds a request by part.

    Disaggregated roles work side by side, so the slower one limits; colocated stages add up. A prompt pays the
    profile's time for its tokens and its squared length; constants of a layer are shared by S = ``max_tokens`` tokens.
    """
    c = instance_costs(profile, model, instance)
    tokens, squares = float(workload.tokens.mean()), float((workload.tokens.astype(float) ** 2).mean())
    share = tokens / system.batching.max_tokens
    moe_layers = model.L - model.dense
    attention_s = model.L * (share * c.stage.attention_fixed_s + c.stage.attention_token_s * tokens)
    attention_s += model.L * c.stage.attention_square_s * squares + model.dense * c.dense_token_s * tokens
    tp_s = model.L * (share * c.tp_fixed_s + c.tp_token_s * tokens)
    sum_s = moe_layers * c.sum_token_s * tokens
    send_s = moe_layers * (share * c.latency_s + c.dispatch_token_s * tokens)
    moe_s = moe_layers * max(c.stage.moe_floor_s * share, c.stage.moe_row_s * tokens * model.K / instance.E)
    back_s = moe_layers * (share * c.latency_s + c.combine_token_s * tokens)
    host_s = share * c.host_s
    parts = {"attention": attention_s, "tp": tp_s, "dispatch": send_s, "moe": moe_s, "combine": sum_s, "host": host_s}
    colocated = system.placement.kind == "colocated"
    if colocated:
        parts["combine"] += back_s
        group_s = sum(value for part, value in parts.items() if part != "moe")
        return 1.0 / (group_s / instance.D + moe_s), parts
    # the transfer back belongs to links; a group's devices send on their own time unless sends overlap
    busy = [attention_s, tp_s] + ([] if "attention" in system.pipeline.overlap else [send_s, sum_s])
    return min(instance.D / sum(busy), 1.0 / moe_s), parts


def typical_lengths(max_tokens: int = 32768) -> Workload:
    """A large sample of the paper's lengths, for means that do not depend on a run's seed."""
    from asaplab import workload

    sample = workload.poisson(rps=1000.0, requests=200_000, seed=1, max_tokens=max_tokens)
    assert np.all(sample.tokens <= max_tokens)
    return sample
