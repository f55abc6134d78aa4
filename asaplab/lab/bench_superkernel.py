"""``asaplab bench superkernel``: the super kernel against the dense peak and the read bandwidth (Figure 3b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
import torch.nn.functional as F

from asaplab import superkernel
from asaplab.lab.interleaved import median_seconds

H, I, EXPERTS = 2048, 768, 16  # noqa: E741  (one expert of Qwen3-30B-A3B)
THREADS = 1  # what a MoE device of the engine computes with
READ_BYTES = 512 << 20  # far beyond any cache
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def bench(quick: bool = False) -> dict[str, Any]:
    """Measure the super kernel at H 2048, I 768, 16 experts on one thread, weights cold (layers in turn).

    All figures are medians of interleaved repetitions. Keys:

    - ``rows``: for each dtype and row count (random experts) ``peak_ratio``, GFLOP/s over the better of torch.mm
      and prepacked oneDNN in the same dtype; ``float32_peak_ratio``, over that in float32, where bfloat16 is
      slower; ``bandwidth_ratio``, weight bytes/s over the best read bandwidth; ``linear_loop_ratio``, the time of a
      loop of F.linear over the kernel's (None where it was left out to save time).
    - ``dispatch_ratio``: time of the kernel over transformers' eager MoE block, both with one tiny row for each of 16
      experts (None without transformers); ``dispatch_us`` and ``eager_us`` are the times.
    - ``inflection_rows_per_expert``: where the time of a bfloat16 layer turns from constant to linear in the rows an
      expert has (Figure 3b), by a fit; ``inflection`` has both dtypes and the points.
    """
    with threads_limited(THREADS), torch.inference_mode():
        results = {name: _measure(dtype, quick) for name, dtype in DTYPES.items()}
        dispatch = _dispatch(100 if quick else 1000)
    float32_peak = results["float32"]["peak"]
    rows = [
        {"dtype": name, **row, "float32_peak_ratio": row["gflops"] * 1e9 / float32_peak}
        for name, result in results.items()
        for row in result["rows"]
    ]
    return {
        "kernel": superkernel.cpu_capability(),
        "threads": THREADS,
        "rows": rows,
        **dispatch,
        "inflection_rows_per_expert": results["bfloat16"]["inflection"]["rows_per_expert"],
        "inflection": {name: result["inflection"] for name, result in results.items()},
        "peak_gflops": {name: result["peak"] / 1e9 for name, result in results.items()},
        "read_gb_s": {name: result["read"] / 1e9 for name, result in results.items()},
    }


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(dtype: torch.dtype, quick: bool) -> dict[str, Any]:
    """One dtype: rows against peak and bandwidth, then the inflection."""
    layers = range(2 if quick else 3)
    weights = {
        layer: (
            torch.empty(EXPERTS, 2 * I, H, dtype=dtype).uniform_(-(H**-0.5), H**-0.5),
            torch.empty(EXPERTS, H, I, dtype=dtype).uniform_(-(I**-0.5), I**-0.5),
        )
        for layer in layers
    }
    table = superkernel.pack(weights)
    # where the dtype has no instructions of its own, torch takes minutes for what the kernel does in seconds
    slow = dtype == torch.bfloat16 and not torch.cpu._is_avx512_bf16_supported()
    counts = {rows: _random_counts(rows) for rows in ((64, 4096) if quick else (16, 64, 256, 1024, 4096))}
    calls: dict[Any, Callable[[], object]] = {
        ("kernel", rows): _kernel_call(table, count, dtype) for rows, count in counts.items()
    }
    for rows, count in counts.items():
        if rows <= (64 if quick else 1024 if slow else 4096):
            calls["loop", rows] = _loop_call(weights, count, dtype)
    dense_rows = (256 if quick else 1024) if slow else (1024 if quick else 4096)
    calls |= {("dense", name): call for name, call in _dense_calls(dtype, dense_rows).items()}
    calls |= {("read", name): call for name, call in _read_calls().items()}
    seconds = median_seconds(calls, 5 if quick else 9)
    peak = 4 * dense_rows * H * I / min(s for (kind, _), s in seconds.items() if kind == "dense")
    read = READ_BYTES / min(s for (kind, _), s in seconds.items() if kind == "read")
    rows_out = []
    for rows, count in counts.items():
        taken = seconds["kernel", rows]
        weight_bytes = 3 * H * I * int((count > 0).sum()) * dtype.itemsize
        loop = seconds.get(("loop", rows))
        rows_out.append(
            {
                "rows": rows,
                "ms": taken * 1e3,
                "gflops": 6 * rows * H * I / taken / 1e9,
                "peak_ratio": 6 * rows * H * I / taken / peak,
                "bandwidth_ratio": weight_bytes / taken / read,
                "linear_loop_ratio": loop and loop / taken,
            }
        )
    per_expert = (1, 2, 4, 8, 16, 32, 64) if quick else (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    even = {n: _kernel_call(table, torch.full((EXPERTS,), n), dtype) for n in per_expert}
    times = median_seconds(even, 3 if quick else 9)
    found = inflection(list(times), list(times.values()))
    points = [{"rows_per_expert": n, "ms": s * 1e3} for n, s in times.items()]
    return {"rows": rows_out, "peak": peak, "read": read, "inflection": {"rows_per_expert": found, "points": points}}


def _random_counts(rows: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.bincount(torch.randint(0, EXPERTS, (rows,), generator=random), minlength=EXPERTS)


def _offsets(counts_E: torch.Tensor) -> torch.Tensor:
    return F.pad(counts_E.cumsum(0), (1, 0))


def _kernel_call(table: superkernel.AddressTable, counts_E: torch.Tensor, dtype: torch.dtype) -> Callable[[], object]:
    x_mH, offsets_E1 = torch.randn(int(counts_E.sum()), table.H).to(dtype), _offsets(counts_E)
    out_mH, layers = torch.empty_like(x_mH), cycle([torch.tensor([layer]) for layer in table.layers])
    return lambda: superkernel.grouped_mlp(x_mH, offsets_E1, next(layers), table, out_mH)


def _loop_call(weights: dict[int, Any], counts_E: torch.Tensor, dtype: torch.dtype) -> Callable[[], object]:
    """What a framework does without a grouped kernel."""
    x_mH, offsets = torch.randn(int(counts_E.sum()), H).to(dtype), _offsets(counts_E).tolist()
    out_mH, layers = torch.empty_like(x_mH), cycle(weights.values())

    def call() -> None:
        gate_up_e2IH, down_eHI = next(layers)
        for e in range(EXPERTS):
            a, b = offsets[e], offsets[e + 1]
            if a < b:
                gate_nI, up_nI = F.linear(x_mH[a:b], gate_up_e2IH[e]).chunk(2, dim=-1)
                out_mH[a:b] = F.linear(F.silu(gate_nI) * up_nI, down_eHI[e])

    return call


def _dense_calls(dtype: torch.dtype, rows: int) -> dict[str, Callable[[], object]]:
    """Dense products of one expert's gate-up shape: rows x H times H x 2 I."""
    x_nH, weight_2IH = torch.randn(rows, H).to(dtype), torch.randn(2 * I, H).to(dtype)
    calls: dict[str, Callable[[], object]] = {"torch.mm": lambda: torch.mm(x_nH, weight_2IH.t())}
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight_2IH.clone(), rows)
        linear = torch.ops.mkldnn._linear_pointwise
        linear(x_nH, packed, None, "none", [], "")
        calls["oneDNN"] = lambda: linear(x_nH, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):  # this build or this machine has no such kernel
        pass
    return calls


def _read_calls() -> dict[str, Callable[[], object]]:
    """Reductions over memory that no cache holds."""
    memory = torch.ones(READ_BYTES // 8, dtype=torch.int64)
    return {"int64": memory.sum, "float32": memory.view(torch.float32).sum}


def _dispatch(repetitions: int) -> dict[str, float | None]:
    """Sixteen experts with one tiny row each: what a call costs beside the arithmetic."""
    hidden, inner = 64, 32
    weights = (torch.randn(EXPERTS, 2 * inner, hidden), torch.randn(EXPERTS, hidden, inner))
    table = superkernel.pack({0: weights})
    calls = {"kernel": _kernel_call(table, torch.ones(EXPERTS, dtype=torch.int64), torch.float32)}
    try:
        from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
    except ImportError:
        pass
    else:
        config = Qwen3MoeConfig(
            hidden_size=hidden, moe_intermediate_size=inner, num_experts=EXPERTS, num_experts_per_tok=1
        )
        config._experts_implementation = "eager"
        block = Qwen3MoeSparseMoeBlock(config).eval()
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        # token e is expert e's: the router sees unit vectors that its weight maps to themselves
        block.gate.weight.copy_(torch.eye(EXPERTS, hidden))
        tokens = torch.eye(EXPERTS, hidden)[None]
        calls["eager"] = lambda: block(tokens)
    seconds = median_seconds(calls, repetitions)
    eager = seconds.get("eager")
    return {
        "dispatch_ratio": eager and seconds["kernel"] / eager,
        "dispatch_us": seconds["kernel"] * 1e6,
        "eager_us": eager and eager * 1e6,
    }


def inflection(rows: Sequence[float], seconds: Sequence[float]) -> float:
    """Where a time turns from constant to linear: a / b of the best fit of max(a, b * rows) to logarithms.

    Rows ascend. For each split in two, a is the geometric mean of the times below, b that of times over rows above.
    """
    logs, slopes = [math.log(s) for s in seconds], [math.log(s / n) for s, n in zip(seconds, rows)]

    def fit(split: int) -> tuple[float, float]:
        a, b = sum(logs[:split]) / split, sum(slopes[split:]) / (len(logs) - split)
        error = sum((t - max(a, b + math.log(n))) ** 2 for t, n in zip(logs, rows))
        return error, math.exp(a - b)

    return min(fit(split) for split in range(1, len(rows)))[1]
