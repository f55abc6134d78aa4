"""``asaplab bench WHAT``: every figure a ratio, measured in one run against a peer or the machine's limit."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

from asaplab.errors import InputError
from asaplab.lab.bench_progress import Partial
from asaplab.lab.commands import common

PARTS = ("shared", "slo", "twin", "factorial", "net_cost")  # of bench engine

BENCHES = {
    "primitives": "dispatch and combine against gloo, MPI and memcpy (Figure 14)",
    "superkernel": "the MoE super kernel against the dense peak and the read bandwidth (Figure 3b)",
    "attention": "the attention kernel against scaled_dot_product_attention",
    "engine": "SLO throughput of systems on real processes; tokens per second against transformers",
    "twin": "the event kernel: events and simulated seconds per second",
}


def add_parsers(subparsers: Any) -> None:
    bench = subparsers.add_parser("bench", help="measure primitives, superkernel, attention, engine or twin")
    bench.add_argument("what", choices=BENCHES, help="; ".join(f"{name}: {text}" for name, text in BENCHES.items()))
    bench.add_argument("--quick", action="store_true", help="fewer sizes and repetitions, in about 50 seconds")
    bench.add_argument(
        "--trace",
        type=Path,
        action="append",
        help="engine: a request trace whose prompt lengths to replay; may be repeated (default: the paper's lengths)",
    )
    bench.add_argument("--part", choices=PARTS, action="append", help="engine: measure only this; may be repeated")
    common(bench)
    bench.set_defaults(repeats=3)
    bench.set_defaults(run=run_bench)


def run_bench(args: argparse.Namespace) -> dict[str, Any]:
    """One benchmark as plain values; under --out also as a file that bears its name."""
    if args.what != "engine" and (args.trace or args.part):
        raise InputError(f"--trace and --part belong to bench engine, not to bench {args.what}; leave them out")
    bench = importlib.import_module(f"asaplab.lab.bench_{args.what}").bench
    if args.what == "engine":
        result = bench(
            args.quick, out=args.out, traces=args.trace, parts=args.part, repeats=args.repeats, seed=args.seed
        )
    elif args.what == "primitives":
        result = bench(args.quick, out=args.out)
    else:
        result = bench(args.quick)
    Partial(args.out, args.what).keep(result, complete=True)
    return result
