"""Commands of the twin: ``simulate``, ``slo``, ``search`` and ``claims``."""

from __future__ import annotations

import argparse
from typing import Any

from asaplab.lab.commands import common
from asaplab.lab.commands_engine import parse_attention
from asaplab.lab.workloads import workload_flags, workload_of

LONGEST_TOKENS = 10_000_000  # with an instance for long prompts nothing is left out


def add_parsers(subparsers: Any) -> None:
    simulate = subparsers.add_parser("simulate", help="simulate a workload at paper scale on a virtual clock")
    _instance_flags(simulate)
    workload_flags(simulate, S=32768, duration_s=300.0)
    simulate.add_argument("--instances", type=int, default=1, help="prefill instances behind a balancer (default 1)")
    simulate.add_argument("--balance", choices=("round_robin", "least_loaded"), default="round_robin")
    simulate.add_argument(
        "--prefix-cache", type=float, metavar="TOKENS", help="a prefix cache; needs a trace's hash_ids"
    )
    simulate.add_argument(
        "--sequence-parallel", action="store_true", help="prompts beyond S go to an instance of their own"
    )
    simulate.add_argument("--skew", type=float, default=0.0, metavar="X", help="rows of the r-th expert go with r**-X")
    simulate.add_argument("--redundant", type=int, default=0, metavar="N", help="copies of hot experts, all devices")
    common(simulate)
    simulate.set_defaults(run=run_simulate)
    slo = subparsers.add_parser("slo", help="the highest request rate that keeps the SLO (bisection)")
    _instance_flags(slo)
    _goal_flags(slo)
    common(slo)
    slo.set_defaults(run=run_slo, repeats=3)
    search = subparsers.add_parser("search", help="the best D, T, E under a number of devices and their memory")
    search.add_argument("--devices", type=int, default=32, help="devices of the instance (default 32)")
    search.add_argument("--system", default="asap", help="a disaggregated system (default asap)")
    _model_flags(search)
    _goal_flags(search)
    common(search)
    search.set_defaults(run=run_search, repeats=3)
    claims = subparsers.add_parser("claims", help="the paper's statements beside ours")
    claims.add_argument("--markdown", action="store_true", help="print the page docs/claims.md")
    claims.add_argument("--profile", default="cloudmatrix384", help="cloudmatrix384 (default) or cloudmatrix384-fitted")
    common(claims)
    claims.set_defaults(run=run_claims, show=show_claims, repeats=3)
    calibrate = subparsers.add_parser("calibrate", help="measure this machine and keep it as the profile 'local'")
    calibrate.add_argument("--quick", action="store_true", help="each measurement once")
    common(calibrate)
    calibrate.set_defaults(run=run_calibrate)


def _instance_flags(parser: argparse.ArgumentParser, system: str = "asap") -> None:
    parser.add_argument("--system", default=system, help=f"a named system (default {system})")
    _model_flags(parser)
    parser.add_argument("--attention", metavar="DxT", help="DP groups x TP ranks (default: the paper's 4x4)")
    parser.add_argument("--experts", type=int, metavar="E", help="MoE devices (default: the paper's 16)")


def _model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="deepseek-v3.2", help="a model by name (default deepseek-v3.2)")
    parser.add_argument("--profile", default="cloudmatrix384", help="a cost profile (default cloudmatrix384)")


def _goal_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slo", type=float, default=5.0, help="seconds within which TTFT must stay (default 5)")
    parser.add_argument("--metric", choices=("mean", "p99"), default="mean", help="of TTFT (default mean)")
    parser.add_argument("--duration", type=float, default=300.0, help="seconds of arrivals (default 300)")


def run_calibrate(args: argparse.Namespace) -> dict[str, Any]:
    """Measure and write the profile; with --out it goes into that folder too."""
    from asaplab.lab.calibrate import calibrate
    from asaplab.profiles import local

    profile = calibrate(args.quick)
    path = local.write(profile)
    if args.out is not None:
        local.write(profile, args.out / path.name)
    quantities = profile.quantities()
    values = {name: quantity.value for name, quantity in quantities.items()}
    sources = {name: f"{quantity.basis}: {quantity.source}" for name, quantity in quantities.items()}
    return {"profile": profile.name, "file": str(path), "quantities": values, "sources": sources}


def run_simulate(args: argparse.Namespace) -> dict[str, Any]:
    """One simulation as plain values; with --out the run is saved."""
    from asaplab import observe
    from asaplab.twin import Skew, simulate, simulate_cluster

    several: dict[str, Any] = {}
    uniform = args.skew == 0 and args.redundant == 0
    if args.instances != 1 or args.sequence_parallel:
        several = {"instances": args.instances, "balance": args.balance, "sequence_parallel": args.sequence_parallel}
    if args.sequence_parallel:
        args.max_batch_tokens = LONGEST_TOKENS
    run = (simulate_cluster if several else simulate)(
        workload_of(args),
        args.system,
        **several,
        prefix_cache_tokens=args.prefix_cache,
        skew=None if uniform else Skew(exponent=args.skew, redundant=args.redundant, seed=args.seed),
        model=args.model,
        profile=args.profile,
        attention=None if args.attention is None else parse_attention(args.attention),
        experts=args.experts,
    )
    if args.out is not None:
        observe.save(run, args.out)
    instance = {"D": run.instance.D, "T": run.instance.T, "E": run.instance.E}
    more = {key: run.configuration[key] for key in ("events", "wall_s", "fitted", "extrapolated")}
    return observe.metrics(run) | more | {"instance": instance}


def run_slo(args: argparse.Namespace) -> dict[str, Any]:
    """The SLO throughput of one system, over --repeats seeds."""
    from asaplab.lab.slo import slo

    return slo(
        args.system,
        slo_s=args.slo,
        duration_s=args.duration,
        metric=args.metric,
        repeats=args.repeats,
        seed=args.seed,
        model=args.model,
        profile=args.profile,
        attention=None if args.attention is None else parse_attention(args.attention),
        experts=args.experts,
    )


def run_search(args: argparse.Namespace) -> dict[str, Any]:
    """The best instance, the finalists and what was assumed."""
    from asaplab.lab.search import search

    return search(
        devices=args.devices,
        system=args.system,
        model=args.model,
        profile=args.profile,
        slo_s=args.slo,
        duration_s=args.duration,
        metric=args.metric,
        seed=args.seed,
        repeats=args.repeats,
    )


def run_claims(args: argparse.Namespace) -> dict[str, Any] | None:
    """The ledger; with --markdown its page instead."""
    from asaplab.lab.claims import claims

    result = claims(profile=args.profile, seed=args.seed, repeats=args.repeats)
    if args.markdown:
        from asaplab.lab.claims_page import page

        print(page(result))
        return None
    return result


def show_claims(result: dict[str, Any]) -> None:
    """One line a statement."""
    from asaplab.lab.claims_cells import plain

    for row in result["claims"]:
        print(f"{row['id']:<26} {plain(row['published']):>14} {plain(row['predicted']):>14}  {row['basis'] or ''}")
