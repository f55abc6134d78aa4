"""The twin of a deployed engine in paced mode: same system, instance, model and service times, on a virtual clock.

Paced service times are known exactly. What the engine adds to them (collectives, copies, wake-ups, the host) is taken
from the TTFT parts of a calibration run with one request at a time, per layer, so that nothing in it is queueing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from asaplab.core import Run, Workload
from asaplab.errors import require
from asaplab.profiles.costs import Costs
from asaplab.profiles.profile import InstanceCosts
from asaplab.profiles.shapes import MODELS
from asaplab.twin import Setting, setting_of


def calibration_workload(requests: int = 8, tokens: int = 256, gap_s: float = 1.0) -> Workload:
    """Single prompts so far apart that none waits for another."""
    return Workload(
        arrival_s=np.arange(requests) * gap_s, tokens=np.full(requests, tokens), name="calibration", seed=97
    )


def stretched(costs: Costs, pace: float) -> Costs:
    """Service times in wall seconds."""
    return Costs(**{name: value * pace for name, value in vars(costs).items()})


def twin_of(live: Any, alone: Run) -> Setting:
    """The setting of a deployed paced instance; ``alone`` is its run of ``calibration_workload``.

    Raises:
        InputError: the instance is not paced.
    """
    blueprint = live.blueprint
    require(blueprint.costs is not None, "only a paced instance has service times; deploy with mode='paced'")
    config = blueprint.checkpoint.config
    dense = len(config.dense_layers)
    model = replace(
        MODELS["deepseek-v3"], name=blueprint.checkpoint.directory.name, L=config.L, dense=dense, K=config.K
    )
    stage = stretched(blueprint.costs, blueprint.pace)
    return setting_of(
        blueprint.system, model=model, instance=live.instance, costs=_with_overheads(stage, alone, config.L, dense)
    )


def _with_overheads(stage: Costs, alone: Run, L: int, dense: int) -> InstanceCosts:
    """What the parts of requests alone hold beyond the service times, spread over layers."""
    parts = alone.requests
    median = {name: float(np.median(parts[name])) for name in ("attention", "tp", "dispatch", "moe", "combine", "host")}
    tokens = float(np.median(parts["tokens"]))
    moe_layers = max(L - dense, 1)
    # a request that is alone waits for nobody: what it waited was wake-ups, half of them on the way back
    waits = float(np.median(parts["moe_queue"] + parts["attention_queue"] + parts["barrier_wait"]))
    dispatch_s, combine_s = median["dispatch"] / moe_layers, median["combine"] / moe_layers
    attention_s = max(0.0, median["attention"] / L - stage.attention_s(tokens, tokens**2))
    moe_s = max(0.0, median["moe"] / moe_layers - stage.moe_floor_s)
    return InstanceCosts(
        stage=replace(
            stage, attention_fixed_s=stage.attention_fixed_s + attention_s, moe_floor_s=stage.moe_floor_s + moe_s
        ),
        dense_token_s=0.0,
        tp_fixed_s=median["tp"] / L,
        tp_token_s=0.0,
        latency_s=(dispatch_s + combine_s + waits / moe_layers) / 2,
        dispatch_token_s=0.0,
        combine_token_s=0.0,
        sum_token_s=0.0,
        row_back_s=0.0,
        handshake_s=0.0,
        collective_s=(dispatch_s + combine_s + waits / moe_layers) / 2,
        host_s=median["host"],
        contention=1.0,
    )
