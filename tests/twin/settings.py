"""Small settings whose answers can be written down."""

from dataclasses import replace

import numpy as np

from asaplab.core import Batching, Instance, Pipeline, System, Transport, Workload
from asaplab.profiles.costs import Costs
from asaplab.profiles.profile import InstanceCosts
from asaplab.profiles.shapes import MODELS
from asaplab.twin import setting_of

FREE = InstanceCosts(
    stage=Costs(attention_fixed_s=0.0, attention_token_s=0.0, attention_square_s=0.0, moe_floor_s=0.0, moe_row_s=0.0),
    dense_token_s=0.0,
    tp_fixed_s=0.0,
    tp_token_s=0.0,
    latency_s=0.0,
    dispatch_token_s=0.0,
    combine_token_s=0.0,
    sum_token_s=0.0,
    row_back_s=0.0,
    handshake_s=0.0,
    collective_s=0.0,
    host_s=0.0,
    contention=1.0,
)
ALONE = System(  # every request is a batch of its own and starts as soon as its group is free
    name="alone",
    batching=Batching(policy="fcfs", longest_wait_s=0.0, solo_tokens=32768),
    pipeline=Pipeline(in_flight=1),
    transport=Transport(slots=1),
)


def stage(attention=(0.0, 0.0, 0.0), moe=(0.0, 0.0)):
    fixed, token, square = attention
    return Costs(
        attention_fixed_s=fixed,
        attention_token_s=token,
        attention_square_s=square,
        moe_floor_s=moe[0],
        moe_row_s=moe[1],
    )


def setting(system, costs, *, D=1, T=1, E=1, layers=1, dense=0, K=1):
    model = replace(MODELS["deepseek-v3"], L=layers, dense=dense, K=K)
    return setting_of(system, model=model, instance=Instance(D=D, T=T, E=E), costs=costs)


def workload(arrival_s, tokens):
    arrival_s = np.asarray(arrival_s, float)
    return Workload(arrival_s=arrival_s, tokens=np.broadcast_to(np.asarray(tokens), arrival_s.shape).astype(np.int64))
