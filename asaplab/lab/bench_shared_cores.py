"""Unpaced figures of the engine, on shared cores and marked so: never a comparison between systems."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from asaplab import models
from asaplab.core import Workload
from asaplab.engine import deploy
from asaplab.engine.forks import main_left_alone, start_fork_server
from asaplab.lab.interleaved import median_seconds
from asaplab.lab.sustained import Interval
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.policy import policy
from asaplab.models.reference import Reference

MODEL = "bench-moe"
PROMPTS, LENGTH = 8, 256  # one batch: 2,048 tokens
BATCHES = 6  # batches of one measurement
FAMILIES = {"deepseek_v3": "tiny-deepseek-v3", "qwen3_moe": "bench-moe"}
TINY = FAMILIES | {"qwen3_moe": "tiny-qwen3-moe"}  # where seconds count


def prompts(vocab: int, count: int = PROMPTS, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab, (LENGTH,), generator=generator) for _ in range(count)]


# ------------------------------------------------------------------ disaggregation efficiency


def disaggregation_efficiency(pairs: int, batches: int = BATCHES, count: int = PROMPTS) -> dict[str, Any]:
    """What 1x1+1 reaches of what two independent full-model processes could, given how the model divides.

    Tokens per second of one attention and one MoE device, over those of two processes with the whole model each on
    one thread, divided by the bound ``1 / (2 max(a, 1 - a))`` that the attention share a of the computing allows.
    Measured in pairs, each side in turn, with batches of ``count`` prompts of 256 tokens.
    """
    ratios, shares = [], []
    n = batches * count
    work = Workload(arrival_s=np.zeros(n), tokens=np.full(n, LENGTH), name=f"{count} x {LENGTH}")
    with (
        _two_references(batches, count) as independent,
        deploy(MODEL, attention=(1, 1), experts=1, mode="shared", max_batch_tokens=count * LENGTH) as live,
    ):
        for pair in range(pairs):
            alone_s = independent() if pair % 2 else 0.0  # in turn first and second, so that a drift cancels
            run = live.prefill(work)
            took_s = float((run.requests["arrival_s"] + run.requests["ttft_s"]).max())
            alone_s = alone_s or independent()
            ratios.append((n * LENGTH / took_s) / (2 * n * LENGTH / alone_s))
            shares.append(run.utilization["attention"] / sum(run.utilization.values()))
    a = float(np.median(shares))
    bound = 1 / (2 * max(a, 1 - a))
    return Interval.of([ratio / bound for ratio in ratios]).plain() | {
        "attention_share": a,
        "bound": bound,
        "mode": "shared cores",
        "pairs": pairs,
        "batch": work.name,
    }


@contextlib.contextmanager
def _two_references(batches: int, count: int) -> Iterator[Any]:
    """Two processes with the whole model each; calling the result lets both work at once and returns the seconds."""
    start_fork_server()
    context = multiprocessing.get_context("forkserver")
    ends, processes = [], []
    for _ in range(2):
        mine, theirs = context.Pipe()
        process = context.Process(target=_reference_process, args=(theirs, count), daemon=True)
        with main_left_alone():
            process.start()
        ends.append(mine)
        processes.append(process)
    try:
        for end in ends:
            _answer(end)

        def together() -> float:
            start = time.perf_counter()
            for end in ends:
                end.send(batches)
            for end in ends:
                _answer(end)
            return time.perf_counter() - start

        yield together
    finally:
        for process in processes:
            process.kill()
            process.join()


def _answer(end: Connection, timeout_s: float = 120.0) -> None:
    if not end.poll(timeout_s):
        raise TimeoutError(f"a reference process gave no answer for {timeout_s:.0f} s")
    end.recv()


def _reference_process(end: Connection, count: int) -> None:
    torch.set_num_threads(1)
    checkpoint = Checkpoint(models.resolve(MODEL))
    reference = Reference(checkpoint, policy("float32"))
    batch = prompts(checkpoint.config.vocab, count)
    with torch.inference_mode():
        reference.prefill(batch)
        end.send("ready")
        while True:
            for _ in range(end.recv()):
                reference.prefill(batch)
            end.send("done")


# ------------------------------------------------------------------ the uncut reference against transformers


def reference_over_transformers(
    repetitions: int, families: Mapping[str, str] = FAMILIES, dtype: str = "bfloat16"
) -> dict[str, float] | None:
    """Prefill tokens per second of the uncut reference over transformers', per family; None without transformers.

    The same checkpoint, prompts of equal length (no padding on either side), one thread, the same dtype; transformers
    with its own default attention and expert implementations.
    """
    try:
        import transformers
    except ImportError:
        return None
    transformers.utils.logging.disable_progress_bar()
    ratios = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for family, name in families.items():
            directory = models.resolve(name)
            checkpoint = Checkpoint(directory)
            theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype)).eval()
            batch = prompts(checkpoint.config.vocab)
            calls = {
                "ours": partial(Reference(checkpoint, policy(dtype)).prefill, batch),
                "theirs": partial(theirs, torch.stack(batch), use_cache=False, logits_to_keep=1),
            }
            with torch.inference_mode():
                seconds = median_seconds(calls, repetitions)
            ratios[family] = seconds["theirs"] / seconds["ours"]
    finally:
        torch.set_num_threads(threads)
    return ratios
