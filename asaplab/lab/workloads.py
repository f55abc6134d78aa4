"""A workload from the common command-line flags: a trace, or Poisson arrivals at a rate."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np

from asaplab.core import Workload
from asaplab.errors import InputError


def workload_flags(parser: argparse.ArgumentParser, *, S: int, duration_s: float) -> None:
    """Add --trace or --rps and what scales them."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--trace", help="request trace: Mooncake or Bailian JSONL, Azure or BurstGPT CSV")
    source.add_argument("--rps", type=float, help="Poisson arrivals at this rate, requests per second")
    parser.add_argument("--duration", type=float, default=duration_s, help="seconds of arrivals with --rps")
    parser.add_argument("--limit", type=int, help="take the first LIMIT requests")
    parser.add_argument("--length-scale", type=float, default=1.0, help="multiply prompt lengths: max(1, round)")
    parser.add_argument("--time-scale", type=float, default=1.0, help="multiply arrival times")
    parser.add_argument("--max-batch-tokens", type=int, default=S, help=f"S, the largest batch (default {S})")
    parser.add_argument("--strict", action="store_true", help="refuse prompts beyond S instead of leaving them out")
    parser.add_argument("--spread", action="store_true", help="spread arrivals with equal times over the trace's tick")


def workload_of(args: argparse.Namespace) -> Workload:
    """The workload that the flags ask for; prompts that were left out are named once on standard error.

    Raises:
        InputError: neither --trace nor --rps, or a flag breaks its rule.
    """
    made = traffic(
        trace=args.trace,
        rps=args.rps,
        duration_s=args.duration,
        limit=args.limit,
        length_scale=args.length_scale,
        time_scale=args.time_scale,
        max_batch_tokens=args.max_batch_tokens,
        strict=args.strict,
        spread=args.spread,
        seed=args.seed,
    )
    note = made.source.get("excluded_note")
    if note:
        print(f"asaplab: {note}", file=sys.stderr)
    return made


def traffic(
    *,
    trace: str | Path | None = None,
    rps: float | None = None,
    duration_s: float = 10.0,
    limit: int | None = None,
    length_scale: float = 1.0,
    time_scale: float = 1.0,
    max_batch_tokens: int = 32768,
    strict: bool = False,
    spread: bool = False,
    seed: int = 0,
) -> Workload:
    """A trace file's requests, or Poisson arrivals at a rate with the paper's lengths; both scaled alike.

    Lengths become ``max(1, round(length_scale * tokens))`` and arrival times are multiplied by ``time_scale``. With
    ``limit`` that many requests are taken instead of ``duration_s`` seconds of them.

    Raises:
        InputError: neither a trace nor a rate, or a value breaks its rule.
    """
    from asaplab import workload

    if max_batch_tokens < 1:
        raise InputError(f"--max-batch-tokens is {max_batch_tokens}; S must be at least 1")
    for flag, scale in (("--length-scale", length_scale), ("--time-scale", time_scale)):
        if not 0 < scale < float("inf"):
            raise InputError(f"{flag} is {scale}; give a number above 0")
    if trace:
        return workload.read_trace(
            trace,
            limit=limit,
            length_scale=length_scale,
            time_scale=time_scale,
            max_batch_tokens=max_batch_tokens,
            strict=strict,
            spread=spread,
            seed=seed,
        )
    if rps is None:
        raise InputError("no workload was asked for; give --trace FILE or --rps RATE")
    # Poisson arrivals, scaled as a trace would be: the limit S holds for the scaled lengths
    made = workload.poisson(
        rps=rps,
        duration_s=duration_s if limit is None else None,
        requests=limit,
        seed=seed,
        max_tokens=max(1, round(max_batch_tokens / length_scale)),
        strict=strict,
    )
    tokens = np.clip(np.rint(made.tokens * length_scale), 1, max_batch_tokens).astype(np.int64)
    return dataclasses.replace(made, tokens=tokens, arrival_s=made.arrival_s * time_scale)
