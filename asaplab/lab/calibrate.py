"""``asaplab calibrate``: attention, experts, copies and hand-overs of this machine, as the profile ``local``.

One device is one thread. Rates are measured with dense products and large reads; efficiencies are what attention and
the super kernel achieve of them, so that the profile prices other models too. It takes well under three minutes.
"""

from __future__ import annotations

import time
from multiprocessing import Pipe, Process
from typing import Any

import numpy as np
import torch

from asaplab import models
from asaplab.engine.pace import processor_seconds
from asaplab.lab.characterize import EXPERT_SIZES, attention_seconds, expert_seconds
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.counts import counts
from asaplab.profiles.profile import Profile, Quantity
from asaplab.profiles.ranges import Measured

MODEL = "bench-moe"
BATCHES = ((16,), (128,), (512,), (1024,), (2048,), (256,) * 4, (128,) * 16)
EXPERT_TOKENS = (16, 64, 256, 1024, 2048)
HOPS = 2000


def calibrate(quick: bool = False) -> Profile:
    """Measure this machine. The profile prices one device as one thread with float32 weights."""
    repetitions = 1 if quick else 5
    dense_rate, read_rate, copy_rate = _dense_rate(), _read_rate(), _copy_rate()
    attention = attention_seconds(BATCHES, model=MODEL, repetitions=repetitions)
    fixed_s, token_s, square_s = attention_coefficients(BATCHES, attention)
    experts = expert_seconds(EXPERT_TOKENS, repetitions=repetitions)
    config = Checkpoint(models.resolve(MODEL)).config
    projections = counts(config).attention_per_token - 2.0 * config.H * (3 * config.shared_I + config.E_total)
    squares = float(config.heads * (config.head_dim + config.v_dim))
    wide = 6.0 * EXPERT_SIZES["H"] * EXPERT_SIZES["I"]
    row_s = (experts[-1] - experts[-2]) / ((EXPERT_TOKENS[-1] - EXPERT_TOKENS[-2]) * EXPERT_SIZES["K"])
    weights = EXPERT_SIZES["experts"] * 3 * EXPERT_SIZES["H"] * EXPERT_SIZES["I"] * 4.0
    # nothing beats a peak: where one of our kernels is faster than the plain product or read, it is the peak
    square_rate = squares / square_s if square_s > 0 else dense_rate
    row_rate = wide / row_s if row_s > 0 else dense_rate
    weight_rate = weights / experts[0]
    attention_rate, dense_rate = max(dense_rate, square_rate), max(dense_rate, row_rate)
    read_rate, hop_s = max(read_rate, weight_rate), _hop()

    def measured(value: float, source: str) -> Quantity:
        return Quantity(value=float(value), basis="measured", source=source)

    def share(of_rate: float, source: str) -> Quantity:
        return measured(min(1.0, max(of_rate, 1e-6)), source)

    assumed = Quantity(value=1e-3, basis="assumed", source="scheduling, embedding and head of a batch")
    rows = [tokens * EXPERT_SIZES["K"] / EXPERT_SIZES["experts"] for tokens in EXPERT_TOKENS]
    lengths = [n for batch in BATCHES for n in batch]
    return Profile(
        name="local",
        measured=Measured(
            model=MODEL, T=1, prompt_tokens=(min(lengths), max(lengths)), expert_rows=(min(rows), max(rows))
        ),
        dense_rate=measured(
            dense_rate, "float32 product of 1024 x 1024, one thread, or the super kernel's where faster"
        ),
        attention_rate=measured(attention_rate, "the same product, or attention's quadratic term where faster"),
        hbm=measured(read_rate, "sum over 256 MB, one thread, or the super kernel at 16 tokens where faster"),
        memory=Quantity(value=4e9, basis="assumed", source="memory of one device process"),
        link=measured(copy_rate, "copy of 64 MB"),
        weight_bytes=Quantity(value=4.0, basis="measured", source="float32"),
        dispatch_bytes=Quantity(value=4.0, basis="measured", source="float32"),
        combine_bytes=Quantity(value=4.0, basis="measured", source="float32"),
        attention_fixed_s=measured(fixed_s, f"attention of {MODEL}, constant term"),
        token_efficiency=share(projections / max(token_s, 1e-15) / dense_rate, f"attention of {MODEL}, linear term"),
        square_efficiency=share(square_rate / attention_rate, f"attention of {MODEL}, quadratic term"),
        moe_efficiency=share(row_rate / dense_rate, "super kernel, 1,024 to 2,048 tokens"),
        hbm_efficiency=share(weight_rate / read_rate, "super kernel, 16 tokens"),
        latency_s=measured(hop_s, "one-way hand-over between two processes"),
        handshake_s=measured(2 * hop_s, "there and back"),
        collective_s=measured(2 * hop_s, "there and back"),
        host_s=assumed,
        contention=Quantity(value=1.0, basis="assumed", source="one thread a device"),
    )


def attention_coefficients(batches: Any, seconds: list[float]) -> tuple[float, float, float]:
    """Constant, linear and quadratic term (s) that fit in relative error, none negative."""
    from scipy.optimize import nnls

    rows = np.array([[1.0, sum(b), sum(n * n for n in b)] for b in batches]) / np.array(seconds)[:, None]
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale, np.ones(len(seconds)))
    fixed_s, token_s, square_s = (found / scale).tolist()
    return fixed_s, token_s, square_s


def _dense_rate() -> float:
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / processor_seconds(lambda: a @ a)


def _read_rate() -> float:
    x = torch.ones(64 << 20)
    return x.nbytes / processor_seconds(x.sum, 4)


def _copy_rate() -> float:
    x, y = torch.ones(16 << 20), torch.zeros(16 << 20)
    return x.nbytes / processor_seconds(lambda: y.copy_(x), 5)


def _echo(pipe: Any) -> None:
    for _ in range(HOPS):
        pipe.send_bytes(pipe.recv_bytes())


def _hop() -> float:
    """Seconds of one hand-over: half of a round trip between two processes that sleep while they wait."""
    here, there = Pipe()
    other = Process(target=_echo, args=(there,), daemon=True)
    other.start()
    try:
        start = 0.0
        for k in range(HOPS):
            if k == HOPS // 4:
                start = time.perf_counter()
            here.send_bytes(b"x")
            if not here.poll(10.0):
                break
            here.recv_bytes()
        return (time.perf_counter() - start) / (HOPS - HOPS // 4) / 2
    finally:
        other.join(2.0)
        if other.is_alive():
            other.terminate()
