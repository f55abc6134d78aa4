"""How attention and experts behave on this machine (section 2.2): what makes barriers expensive, measured.

Times are processor time of the one thread that computes, so that whatever else runs on the machine disturbs little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

import numpy as np
import torch

from asaplab import models, superkernel
from asaplab.errors import InputError
from asaplab.lab.interleaved import median_seconds
from asaplab.models.attention_stage import AttentionStage
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.indexer import index_mask
from asaplab.models.policy import policy

EXPERT_SIZES = {"H": 1024, "I": 384, "experts": 16, "K": 2}  # small enough to be measured in seconds


def attention_seconds(batches: Sequence[Sequence[int]], *, model: str, repetitions: int = 5) -> list[float]:
    """Median time (s) of one layer's attention for each batch of prompt lengths, one thread, T = 1.

    Raises:
        InputError: no such model.
    """
    checkpoint = Checkpoint(models.resolve(model))
    numbers = policy("float32")
    stage = AttentionStage(checkpoint.config, checkpoint.attention_weights(0, 1, numbers), numbers, 0, 1)
    random = torch.Generator().manual_seed(0)

    def one(lengths: Sequence[int]) -> Callable[[], object]:
        ids = [torch.randint(0, checkpoint.config.vocab, (n,), generator=random) for n in lengths]
        hidden = torch.randn(sum(lengths), checkpoint.config.H, generator=random)

        def call() -> object:
            context = stage.begin(ids, [stage.cache(len(i)) for i in ids])
            return stage.attention(0, hidden, context)

        return call

    with _one_thread(), torch.inference_mode():
        times = median_seconds({k: one(lengths) for k, lengths in enumerate(batches)}, repetitions, thread_time)
    return [times[k] for k in range(len(batches))]


def indexer_costs(lengths: Sequence[int], *, model: str, repetitions: int = 5) -> tuple[list[float], list[int]]:
    """What DeepSeek-V3.2's lightning indexer costs for prompts of these lengths, one thread.

    Returns the median time (s) in which it chooses keys for every query of a prompt, and how many (query, key) pairs it
    leaves to the sparse attention.

    Raises:
        InputError: no such model, or one without an indexer.
    """
    sizes = Checkpoint(models.resolve(model)).config.indexer
    if sizes is None:
        raise InputError(f"model {model!r} has no indexer; name one of the DeepSeek-V3.2 family")
    numbers, random = policy("float32"), torch.Generator().manual_seed(0)

    def one(n: int) -> Callable[[], torch.Tensor]:
        q_hnd = torch.randn(sizes.heads, n, sizes.dim, generator=random)
        k_nd, weight_hn = (torch.randn(*shape, generator=random) for shape in ((n, sizes.dim), (sizes.heads, n)))
        return lambda: index_mask(q_hnd, weight_hn, k_nd, 0, sizes, numbers)

    with _one_thread(), torch.inference_mode():
        calls = {k: one(n) for k, n in enumerate(lengths)}
        pairs = [int((call() == 0).tril().sum()) for call in calls.values()]
        times = median_seconds(calls, repetitions, thread_time)
    return [times[k] for k in range(len(lengths))], pairs


def expert_seconds(tokens: Sequence[int], *, repetitions: int = 5) -> list[float]:
    """Median time (s) of one MoE layer for each number of tokens, each with K experts; weights cold, one thread."""
    sizes, random = EXPERT_SIZES, torch.Generator().manual_seed(0)
    H, wide, count = sizes["H"], sizes["I"], sizes["experts"]
    layers = {
        layer: (torch.randn(count, 2 * wide, H, generator=random), torch.randn(count, H, wide, generator=random))
        for layer in range(2)  # in turn, so that no layer's weights stay in a cache
    }
    table = superkernel.pack(layers)

    def one(n: int) -> Callable[[], object]:
        expert_m = torch.randint(0, count, (n * sizes["K"],), generator=random).sort().values
        offsets_E1 = torch.zeros(count + 1, dtype=torch.int64)
        offsets_E1[1:] = torch.bincount(expert_m, minlength=count).cumsum(0)
        x_mH = torch.randn(len(expert_m), H, generator=random)
        turn = iter(range(10**9))
        return lambda: superkernel.grouped_mlp(x_mH, offsets_E1, torch.tensor([next(turn) % 2]), table)

    with _one_thread(), torch.inference_mode():
        times = median_seconds({k: one(n) for k, n in enumerate(tokens)}, repetitions, thread_time)
    return [times[k] for k in range(len(tokens))]


def polynomial(x: Sequence[float], y: Sequence[float], powers: Sequence[int]) -> tuple[list[float], float]:
    """Non-negative coefficients of the powers of x that fit y best in relative terms, and the worst relative miss."""
    from scipy.optimize import nnls

    values, wanted = np.asarray(x, np.float64), np.asarray(y, np.float64)
    columns = np.stack([values**power for power in powers], axis=1) / wanted[:, None]
    scale = columns.max(axis=0)
    fitted, _ = nnls(columns / scale, np.ones(len(wanted)))
    coefficients = fitted / scale
    return coefficients.tolist(), float(np.abs(columns @ coefficients - 1).max())


def inflection(tokens: Sequence[float], seconds: Sequence[float]) -> float:
    """Tokens at which a time that is first flat and then linear turns: where its floor meets its slope (Figure 3b)."""
    x, y = np.asarray(tokens, np.float64), np.asarray(seconds, np.float64)
    floor = float(y.min())
    slope = float(((y - floor) * x).sum() / (x * x).sum())
    for _ in range(100):  # points on the floor say nothing about the slope
        linear = slope * x > floor
        if not linear.any():
            break
        better = float((y[linear] * x[linear]).sum() / (x[linear] ** 2).sum())
        if abs(better - slope) < 1e-9 * slope:
            break
        slope = better
    return floor / slope if slope > 0 else float("inf")


def imbalance_table(lengths: np.ndarray) -> list[dict[str, Any]]:
    """How unequal prompts are: their percentiles and the share of sum of squares that the longest tenth carries."""
    ordered = np.sort(lengths.astype(np.float64))
    squares = ordered**2
    tenth = max(1, len(ordered) // 10)
    return [
        {"what": "prompts", "value": float(len(ordered))},
        {"what": "mean tokens", "value": float(ordered.mean())},
        {"what": "median tokens", "value": float(np.median(ordered))},
        {"what": "99th percentile", "value": float(np.percentile(ordered, 99))},
        {
            "what": "share of attention work in the longest tenth",
            "value": float(squares[-tenth:].sum() / squares.sum()),
        },
    ]


class _one_thread:
    """What a device of the engine computes with."""

    def __enter__(self) -> None:
        self.before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.before)
