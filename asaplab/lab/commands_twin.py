"""Commands of the twin: ``simulate``."""

from __future__ import annotations

import argparse
from typing import Any

from asaplab.lab.commands import common
from asaplab.lab.commands_engine import parse_attention
from asaplab.lab.workloads import workload_flags, workload_of


def add_parsers(subparsers: Any) -> None:
    simulate = subparsers.add_parser("simulate", help="simulate a workload at paper scale on a virtual clock")
    _instance_flags(simulate)
    workload_flags(simulate, S=32768, duration_s=300.0)
    common(simulate)
    simulate.set_defaults(run=run_simulate)


def _instance_flags(parser: argparse.ArgumentParser, system: str = "asap") -> None:
    parser.add_argument("--system", default=system, help=f"a named system (default {system})")
    parser.add_argument("--model", default="deepseek-v3.2", help="a model by name (default deepseek-v3.2)")
    parser.add_argument("--profile", default="cloudmatrix384", help="a cost profile (default cloudmatrix384)")
    parser.add_argument("--attention", metavar="DxT", help="DP groups x TP ranks (default: the paper's 4x4)")
    parser.add_argument("--experts", type=int, metavar="E", help="MoE devices (default: the paper's 16)")


def run_simulate(args: argparse.Namespace) -> dict[str, Any]:
    """One simulation as plain values; with --out the run is saved."""
    from asaplab import observe
    from asaplab.twin.run import simulate

    run = simulate(
        workload_of(args),
        args.system,
        model=args.model,
        profile=args.profile,
        attention=None if args.attention is None else parse_attention(args.attention),
        experts=args.experts,
    )
    if args.out is not None:
        observe.save(run, args.out)
    instance = {"D": run.instance.D, "T": run.instance.T, "E": run.instance.E}
    c = run.configuration
    return observe.metrics(run) | {key: c[key] for key in ("events", "wall_s", "fitted")} | {"instance": instance}
