"""``asaplab bench attention``: the attention kernel against torch's, on prompts of one length (Figures 3a and 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from asaplab import superkernel
from asaplab.lab.bench_superkernel import DTYPES, threads_limited
from asaplab.lab.interleaved import median_seconds
from asaplab.models.policy import policy
from asaplab.models.varlen import causal_attention

THREADS = 1  # what an attention device of the engine computes with
# KV heads, query heads of each, size of queries and keys, size of values
HEADS = {"GQA": (4, 8, 128, 128), "MLA": (16, 1, 192, 128)}
BATCHES = ((8, 512), (1, 8192))  # prompts, tokens of each
QUICK = ((8, 512),)


def bench(quick: bool = False) -> dict[str, Any]:
    """Measure causal attention of whole prompts on one thread, one prompt after the other on every side.

    ``rows`` {heads, dtype, prompts, tokens, ms, gflops, peer, ratio}: ``peer`` is the faster of torch's
    scaled_dot_product_attention on the tensors as they are and with the values padded to the size of the keys (which
    gives MLA torch's fused kernel), and ``ratio`` its time over ours. GFLOP/s count what causality needs, half of all
    scores. Medians of interleaved repetitions.
    """
    rows = []
    with threads_limited(THREADS), torch.inference_mode():
        for name, heads in HEADS.items():
            for dtype in DTYPES:
                for prompts, tokens in QUICK if quick else BATCHES:
                    calls = _calls(heads, dtype, prompts, tokens)
                    seconds = median_seconds(calls, 3 if quick or tokens > 4096 else 9)
                    ours = seconds.pop("ours")
                    peer = min(seconds, key=lambda one: seconds[one])
                    kv, group, d, dv = heads
                    rows.append(
                        {
                            "heads": name,
                            "dtype": dtype,
                            "prompts": prompts,
                            "tokens": tokens,
                            "ms": ours * 1e3,
                            "gflops": prompts * kv * group * tokens**2 * (d + dv) / ours / 1e9,
                            "peer": peer,
                            "ratio": seconds[peer] / ours,
                        }
                    )
    return {"kernel": superkernel.cpu_capability(), "threads": THREADS, "rows": rows}


def _calls(heads: tuple[int, ...], dtype: str, prompts: int, tokens: int) -> dict[str, Callable[[], object]]:
    kv, group, d, dv = heads
    numbers = policy(dtype)
    random = torch.Generator().manual_seed(0)

    def of(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random).to(numbers.dtype)

    q_bhgmd, k_bhnd, v_bhnv = of(prompts, kv, group, tokens, d), of(prompts, kv, tokens, d), of(prompts, kv, tokens, dv)
    out_bhgmv = torch.empty(prompts, kv, group, tokens, dv, dtype=numbers.dtype)

    def ours() -> None:
        for q, k, v, out in zip(q_bhgmd, k_bhnd, v_bhnv, out_bhgmv):
            causal_attention(q, k, v, out, 0, d**-0.5, numbers)

    def torchs(values: torch.Tensor) -> Callable[[], object]:
        def call() -> None:
            for q, k, v in zip(q_bhgmd.flatten(1, 2), k_bhnd, values):
                F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=group > 1)

        return call

    calls: dict[str, Callable[[], object]] = {"ours": ours}
    if d != dv:
        calls["SDPA, padded values"] = torchs(F.pad(v_bhnv, (0, d - dv)))
    if d == dv or tokens <= 4096:  # torch holds all scores of unequal sizes at once
        calls["SDPA"] = torchs(v_bhnv)
    return calls
