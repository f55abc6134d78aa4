"""Paced instances of the small model, and the traffics they serve, for ``asaplab bench engine``.

Everything that counts tokens is a sixteenth of the paper's, so that processes on few cores serve a prompt in tenths of
a second: prompt lengths, S, chunks, budgets and thresholds, and with them the token counts at which service times
bend. The host's time to dispatch a per-layer kernel keeps its ratio to the time that a MoE device takes at least, half
of it, since a layer of the small model takes microseconds.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from asaplab import models, workload
from asaplab.core import Instance, Run, System, Workload
from asaplab.engine import Deployment, deploy
from asaplab.engine.pace import pace_of
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.models.policy import policy
from asaplab.profiles.nominal import nominal_costs
from asaplab.scheduler import named

MODEL, DTYPE = "tiny-deepseek-v3", "float32"
DEVICES = 4
EVEN = Instance(D=2, T=1, E=2)  # the paper's split of its devices: half for each role
SHRINK = 16
S = 32768 // SHRINK
PAPER_FLOOR_S = 0.44e-3  # 16 of DeepSeek-V3's experts in int8, 705 MB, read at 1.6 TB/s: a MoE device with E = 16
CORE_RPS = 25.0  # requests/s a core that the clock is slowed to (assumed: two cores were the limit at 67 each)
SLO_FACTOR = 10.0  # the SLO is this many times default's unloaded mean TTFT
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Prompt lengths, replayed as Poisson arrivals at any rate: the same prompts and gaps for every system."""

    name: str
    lengths: np.ndarray
    excluded: int = 0  # prompts beyond S

    def at(self, rps: float, duration_s: float, seed: int) -> Workload:
        return workload.poisson(rps=rps, duration_s=duration_s, lengths=self.lengths, seed=seed, max_tokens=S)


def paper_traffic() -> Traffic:
    """The paper's length distribution, which needs no file."""
    drawn = workload.poisson(rps=1.0, requests=4000, seed=SEED)
    return Traffic(name=f"paper/{SHRINK}", lengths=np.maximum(1, np.rint(drawn.tokens / SHRINK)).astype(np.int64))


def traffics(traces: Sequence[Path] | None) -> list[Traffic]:
    """The lengths of each trace file, or the paper's without any.

    Raises:
        InputError: a file is no trace.
    """
    if not traces:
        return [paper_traffic()]
    made = []
    for path in traces:
        read = workload.read_trace(path, length_scale=1 / SHRINK, max_batch_tokens=S)
        made.append(Traffic(name=Path(path).stem, lengths=read.tokens, excluded=read.excluded))
    return made


@cache
def _checkpoint() -> Checkpoint:
    return Checkpoint(models.resolve(MODEL))


def floor_s(E: int) -> float:
    """What one of E MoE devices takes at least for a layer of the small model, in nominal seconds."""
    config = _checkpoint().config
    return nominal_costs(counts(config), 1, math.ceil(config.E_total / E), SHRINK).moe_floor_s


def roofline(traffic: Traffic, split: Instance) -> float:
    """Prompts that the busier role could serve in a nominal second, in batches that close at asap's threshold."""
    config = _checkpoint().config
    costs = nominal_costs(counts(config), split.T, config.E_total, SHRINK)
    tokens = float(traffic.lengths.mean())
    squares = float((traffic.lengths.astype(float) ** 2).mean())
    token_s = costs.attention_token_s + costs.attention_fixed_s * SHRINK / named("asap").batching.threshold_tokens
    attention_s = config.L * (token_s * tokens + costs.attention_square_s * squares)
    moe_s = (config.L - len(config.dense_layers)) * costs.moe_row_s * config.K * tokens
    return min(split.D / attention_s, split.E / moe_s)


def balanced(traffic: Traffic) -> Instance:
    """The split of the devices over the roles that the model and these lengths ask for, before anything is measured.

    Of all splits it is the one with the highest ``roofline``. The paper's even split suits its model, not every model.
    """
    return max((Instance(D=DEVICES - E, T=1, E=E) for E in range(1, DEVICES)), key=partial(roofline, traffic))


def devices(system: System, split: Instance) -> str:
    """DxT+E, or how many devices share both roles."""
    colocated = system.placement.kind == "colocated"
    return f"{split.devices} colocated" if colocated else f"{split.D}x{split.T}+{split.E}"


def pace(traffic: Traffic) -> float:
    """The machine's pace, or slower where short prompts would come faster than its cores can pass them on."""
    machine = pace_of(_checkpoint(), policy(DTYPE), EVEN)
    return max(machine, roofline(traffic, balanced(traffic)) / (CORE_RPS * len(os.sched_getaffinity(0))))


def shrunk(system: System, E: int) -> System:
    """The system with its token counts a sixteenth, and its host delay in proportion to what E MoE devices take."""
    counted = ("threshold_tokens", "solo_tokens", "budget_tokens", "chunk_tokens")
    b = system.batching
    small = dataclasses.replace(b, **{name: getattr(b, name) and getattr(b, name) // SHRINK for name in counted})
    delay_s = system.pipeline.dispatch_s * floor_s(E) / PAPER_FLOOR_S
    return dataclasses.replace(
        system, batching=small, pipeline=dataclasses.replace(system.pipeline, dispatch_s=delay_s)
    )


def instance(system: System | str, traffic: Traffic, split: Instance | None = None) -> Any:
    """A deployment at the traffic's pace, with ``balanced`` devices without ``split``; colocated systems on as many."""
    split = split or balanced(traffic)
    chosen = named(system) if isinstance(system, str) else system
    return deploy(
        MODEL,
        attention=(split.D, split.T),
        experts=split.E,
        system=shrunk(chosen, split.E),
        mode="paced",
        max_batch_tokens=S,
        shrink=SHRINK,
        dtype=DTYPE,
        pace=pace(traffic),
    )


def mean_ttft_s(run: Run) -> float:
    return float(run.requests["ttft_s"].mean())


def ttft_at(live: Deployment, traffic: Traffic, rps: float, duration_s: float, seed: int) -> float:
    """The mean TTFT of a run with arrivals for that long; at least one request."""
    work = traffic.at(rps, duration_s, seed)
    if len(work) == 0:
        work = workload.poisson(rps=rps, requests=1, lengths=traffic.lengths, seed=seed, max_tokens=S)
    return mean_ttft_s(live.prefill(work))


def slo_of(traffic: Traffic, requests: int = 20) -> float:
    """The SLO in seconds: 10 times default's mean TTFT when every request finds the instance idle."""
    with instance("default", traffic) as live:
        times = []
        for i in range(requests):
            tokens = traffic.lengths[i % len(traffic.lengths)].clip(max=S)
            alone = Workload(arrival_s=np.zeros(1), tokens=np.array([tokens]), name="alone", seed=i)
            times.append(mean_ttft_s(live.prefill(alone)))
    return SLO_FACTOR * float(np.mean(times))
