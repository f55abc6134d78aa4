"""``asaplab bench WHAT``: every figure a ratio, measured in one run against a peer or the machine's limit."""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

from asaplab.lab.commands import common

BENCHES = {
    "primitives": "the four primitives against gloo, MPI and memcpy (Figure 14)",
    "superkernel": "the MoE super kernel against the dense peak and the read bandwidth (Figure 3b)",
    "engine": "SLO throughput of systems on real processes; tokens per second against transformers",
    "twin": "the event kernel: events and simulated seconds per second",
}


def add_parsers(subparsers: Any) -> None:
    bench = subparsers.add_parser("bench", help="measure primitives, superkernel, engine or twin")
    bench.add_argument("what", choices=BENCHES, help="; ".join(f"{name}: {text}" for name, text in BENCHES.items()))
    bench.add_argument("--quick", action="store_true", help="fewer sizes and repetitions, in about 50 seconds")
    common(bench)
    bench.set_defaults(run=run_bench)


def run_bench(args: argparse.Namespace) -> dict[str, Any]:
    """One benchmark as plain values; under --out also as a file that bears its name."""
    result = importlib.import_module(f"asaplab.lab.bench_{args.what}").bench(args.quick)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"bench-{args.what}.json").write_text(json.dumps(result, indent=1))
    return result
