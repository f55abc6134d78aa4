"""Paced mode: a device computes its real tensors, then waits until the profile's service time has passed.

On few cores a waiting device lends its core to the others, which hides every barrier. Paced service times give each
device the speed of its own processor again, as long as computing needs at most half the cores; ``pace_of`` measures
how far the times must be stretched for that, once per model, precision and number of devices on a machine, and keeps
the answer so that runs which are compared share one clock (design.md, section 4).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch

from asaplab import superkernel
from asaplab.core import Instance
from asaplab.models.attention_stage import AttentionStage
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.models.policy import Policy
from asaplab.profiles.costs import Costs
from asaplab.profiles.nominal import nominal_costs

PROBE = (8, 64)  # sequences and their length in the measured batch


class Pacer:
    """Holds a device's thread until the service time of what it just computed has passed."""

    def __init__(self, costs: Costs | None, pace: float) -> None:
        self._costs, self._pace = costs, pace

    def attention(self, tokens: int, sum_squares: int, spent_s: float) -> None:
        if self._costs is not None:
            _sleep(self._costs.attention_s(tokens, sum_squares) * self._pace - spent_s)

    def moe(self, rows: int, spent_s: float) -> None:
        if self._costs is not None:
            _sleep(self._costs.moe_s(rows) * self._pace - spent_s)

    def host(self, seconds: float) -> None:
        """A stated host delay, such as the dispatch of a per-layer kernel (section 5.5.3), stretched like the rest."""
        _sleep(seconds * (self._pace if self._costs is not None else 1.0))


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def pace_of(checkpoint: Checkpoint, policy: Policy, instance: Instance) -> float:
    """Seconds of wall time for one second of the nominal profile, so that computing uses at most half the cores.

    Measured on this machine, kept in the user's cache directory, and the same for every system on as many devices.
    """
    cores = len(os.sched_getaffinity(0))
    shape = hashlib.sha256((checkpoint.directory / "config.json").read_bytes()).hexdigest()[:16]
    n, T = instance.devices, instance.T
    key = f"{shape}-{policy.dtype}-{n} devices-T={T}-{cores} cores"
    place = cache_folder() / "pace" / (hashlib.sha256(key.encode()).hexdigest()[:16] + ".json")
    if place.exists():
        return float(json.loads(place.read_text())["pace"])
    pace = _two_digits_up(_slowest_ratio(checkpoint, policy, T, n) * n * 2 / cores)
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"pace": pace, "of": key}))
    draft.replace(place)
    return pace


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asaplab"


def _slowest_ratio(checkpoint: Checkpoint, policy: Policy, T: int, devices: int) -> float:
    """The larger of measured over nominal time of the two stages, for one middle layer on one thread.

    A MoE device has the experts that it has where all devices hold some: with more, its fixed costs weigh less.
    """
    config = checkpoint.config
    held = math.ceil(config.E_total / devices)
    costs = nominal_costs(counts(config), T, held)
    layer = next(layer for layer in range(config.L) if config.is_moe(layer))
    sequences, length = PROBE
    stage = AttentionStage(config, checkpoint.attention_weights(0, T, policy), policy, 0, T)
    ids = [torch.randint(0, config.vocab, (length,)) for _ in range(sequences)]

    def attention() -> None:
        context = stage.begin(ids, [stage.cache(length) for _ in ids])
        h_NH = stage.embed(context)
        stage.attention(layer, h_NH, context)
        stage.route(layer, h_NH[: len(h_NH) // T])

    experts = range(held)
    table = superkernel.pack({layer: checkpoint.expert_weights(layer, experts, policy)})
    rows = max(1, sequences * length * config.K * len(experts) // config.E_total)
    x_mH = torch.randn(rows, config.H).to(policy.dtype)
    offsets = torch.linspace(0, rows, len(experts) + 1).round().to(torch.int64)
    layer_id = torch.tensor([layer])

    def moe() -> None:
        superkernel.grouped_mlp(x_mH, offsets, layer_id, table)

    tokens = sequences * length
    nominal_moe = costs.moe_row_s * rows  # computing cost: the floor is memory time, which a core does not spend
    nominal_attention = costs.attention_s(tokens, sequences * length**2)
    return max(processor_seconds(attention) / nominal_attention, processor_seconds(moe) / nominal_moe)


def processor_seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Of the fastest repeat, on one thread: what else runs on the machine does not count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            work()
            times = []
            for _ in range(repeats):
                start = time.thread_time()
                work()
                times.append(time.thread_time() - start)
    finally:
        torch.set_num_threads(threads)
    return min(times)


def _two_digits_up(x: float) -> float:
    digit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return math.ceil(x / digit) * digit
