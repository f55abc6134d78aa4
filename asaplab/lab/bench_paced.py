"""Paced instances of the small model, and the traffics they serve, for ``asaplab bench engine``.

Everything that counts tokens is a sixteenth of the paper's, so that processes on few cores serve a prompt in tenths of
a second: prompt lengths, S, chunks and budgets. The length-aware threshold is not: it is the inflection point of the
MoE stage, and the paced service times have the paper's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asaplab import workload
from asaplab.core import Run, System, Workload
from asaplab.engine import Deployment, deploy
from asaplab.scheduler import named

MODEL = "tiny-deepseek-v3"
ATTENTION, EXPERTS = (2, 1), 2
SHRINK = 16
S = 32768 // SHRINK
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


def shrunk(system: System) -> System:
    """The system with its token counts a sixteenth, the threshold excepted."""
    b = system.batching
    chunk = b.chunk_tokens and b.chunk_tokens // SHRINK
    small = dataclasses.replace(
        b, budget_tokens=b.budget_tokens // SHRINK, solo_tokens=b.solo_tokens // SHRINK, chunk_tokens=chunk
    )
    return dataclasses.replace(system, batching=small)


def instance(system: System | str) -> Any:
    """A paced deployment of 2x1+2 devices (colocated systems: on as many)."""
    chosen = named(system) if isinstance(system, str) else system
    return deploy(MODEL, attention=ATTENTION, experts=EXPERTS, system=shrunk(chosen), mode="paced", max_batch_tokens=S)


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
    with instance("default") as live:
        times = []
        for i in range(requests):
            tokens = traffic.lengths[i % len(traffic.lengths)].clip(max=S)
            alone = Workload(arrival_s=np.zeros(1), tokens=np.array([tokens]), name="alone", seed=i)
            times.append(mean_ttft_s(live.prefill(alone)))
    return SLO_FACTOR * float(np.mean(times))
