"""The rate of a load: what was asked for is what a run on a virtual clock shows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asaplab.core import Instance
from asaplab.engine.blueprint import draw
from asaplab.errors import InputError
from asaplab.lab.load import rate_at
from asaplab.lab.paced_twin import stretched
from asaplab.lab.workloads import traffic
from asaplab.profiles.profile import InstanceCosts
from asaplab.profiles.shapes import MODELS
from asaplab.twin import simulate

NOTHING = (
    "dense_token_s", "tp_fixed_s", "tp_token_s", "latency_s", "dispatch_token_s", "combine_token_s", "sum_token_s",
    "row_back_s", "handshake_s", "collective_s", "host_s",
)  # fmt: skip
PLACE = {"model": "tiny-deepseek-v3", "attention": (2, 1), "experts": 2}


def test_rate_grows_with_the_load_and_falls_with_the_length():
    tokens = np.array([50, 200, 1000])
    assert rate_at(0.6, tokens, **PLACE) == pytest.approx(2 * rate_at(0.3, tokens, **PLACE))
    assert rate_at(0.6, 2 * tokens, **PLACE) < rate_at(0.6, tokens, **PLACE)
    with pytest.raises(InputError, match=r"load is 1\.5"):
        rate_at(1.5, tokens, **PLACE)


@pytest.mark.parametrize("load", [0.2, 0.6])
def test_devices_are_about_as_busy_as_was_asked(load):
    tokens = traffic(rps=1.0, limit=600, length_scale=0.05).tokens
    rps = rate_at(load, tokens, **PLACE)
    plan = draw("tiny-deepseek-v3", Instance(D=2, T=1, E=2), "default", mode="paced", dtype="float32",
                max_batch_tokens=None, tp=None, pace=None)  # fmt: skip
    config = plan.checkpoint.config
    model = dataclasses.replace(MODELS["deepseek-v3"], L=config.L, dense=len(config.dense_layers), K=config.K)
    free = dict.fromkeys(NOTHING, 0.0)
    costs = InstanceCosts(stage=stretched(plan.costs, plan.pace), contention=1.0, **free)
    run = simulate(
        traffic(rps=rps, limit=600, length_scale=0.05), plan.system, model=model, instance=plan.instance, costs=costs
    )
    assert 0.7 * load <= run.utilization["colocated"] <= 1.05 * load
