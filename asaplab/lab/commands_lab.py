"""asaplab reproduce, lab and doctor."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asaplab.errors import InputError
from asaplab.lab.commands import common


def add_parsers(subparsers: Any) -> None:
    """Add the commands that people start a session with."""
    reproduce = subparsers.add_parser("reproduce", help="run the notebooks on Dask and write one report")
    reproduce.add_argument("--scale", choices=("smoke", "paper"), default="smoke", help="a minute each, or the paper's")
    reproduce.add_argument("--only", default="", help="numbers of notebooks, as in 05,06 (default: all)")
    reproduce.add_argument("--workers", type=int, default=2, help="notebooks at once (default 2)")
    common(reproduce)
    reproduce.set_defaults(run=run_reproduce, show=show_reproduce)

    lab = subparsers.add_parser("lab", help="JupyterLab with the notebooks, a Dask cluster and its dashboard")
    lab.add_argument("--notebooks", type=Path, default=Path("asaplab-notebooks"), help="where your copies go")
    lab.add_argument("--port", type=int, default=8888, help="JupyterLab's port (the next free one if taken)")
    lab.add_argument("--no-browser", action="store_true", help="only print the link")
    common(lab)
    lab.set_defaults(run=run_lab)

    doctor = subparsers.add_parser("doctor", help="what works on this machine")
    common(doctor)
    doctor.set_defaults(run=run_doctor, show=show_doctor)


def run_reproduce(args: argparse.Namespace) -> dict[str, Any]:
    """Notebooks, report.html and claims.json; the exit status is 1 when a notebook failed."""
    from asaplab.lab import campaign, report

    if args.workers < 1:
        raise InputError(f"--workers is {args.workers}; at least 1 notebook must be able to run")
    out = args.out or Path("runs") / f"reproduce-{args.scale}"
    only = [name for name in args.only.split(",") if name]
    jobs = campaign.plan(scale=args.scale, only=only, out=out, changes={"seed": args.seed})
    with _Bar(quiet=args.json) as bar:
        outcomes = campaign.execute(jobs, workers=args.workers, progress=bar.cell)
    page, claims = report.write(out, outcomes, _ledger(args))
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    return {
        "notebooks": [asdict(outcome) for outcome in outcomes],
        "report": str(page),
        "claims": str(claims),
        "exit_status": 1 if failed else 0,
    }


def show_reproduce(result: dict[str, Any]) -> None:
    """The tables named ``summary``, one line a notebook, and where the report is."""
    from asaplab.lab.campaign import Outcome
    from asaplab.lab.report import summary

    print(summary([Outcome(**entry) for entry in result["notebooks"]]))
    print(f"\nreport: {result['report']}")


def run_lab(args: argparse.Namespace) -> dict[str, Any]:
    """Serve until stopped. The Dask cluster lives and ends with JupyterLab."""
    from asaplab.lab import jupyter
    from asaplab.lab.cluster import local

    jupyter.copy_notebooks(args.notebooks)
    command = jupyter.arguments(args.notebooks.resolve(), port=args.port, browser=not args.no_browser)
    with local(workers=2) as cluster:
        print(f"Dask dashboard: {cluster.dashboard_link.replace('/status', '/asap')}", file=sys.stderr, flush=True)
        status = jupyter.serve(command, jupyter.environment(cluster.scheduler_address))
    return {"notebooks": str(args.notebooks), "exit_status": status}


def run_doctor(args: argparse.Namespace) -> dict[str, Any]:
    """What the machine has; the exit status is 1 when something that is needed is missing."""
    from asaplab.lab.doctor import findings

    found = findings()
    missing = any(finding.good is False for finding in found)
    return {"findings": [finding._asdict() for finding in found], "exit_status": int(missing)}


def show_doctor(result: dict[str, Any]) -> None:
    """One line a finding."""
    marks = {True: "good", False: "MISSING", None: "note"}
    for finding in result["findings"]:
        print(f"{marks[finding['good']]:>7}  {finding['topic']}: {finding['says']}")


def _ledger(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every row of the ledger; the twin's predictions take a minute, so a batch of chosen notebooks goes without."""
    from asaplab.lab.claims_lab import NOTEBOOK_CLAIMS, unanswered
    from asaplab.lab.claims_rows import CLAIMS

    predicted: dict[str, dict[str, Any]] = {}
    if not args.only:
        from asaplab.lab.claims import claims

        predicted = {row["id"]: row for row in claims(seed=args.seed)["claims"]}
    return [predicted.get(claim.id) or unanswered(claim) for claim in (*CLAIMS, *NOTEBOOK_CLAIMS)]


class _Bar:
    """One progress bar over the cells of all notebooks; silent where standard error is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        from tqdm import tqdm

        self.bar = tqdm(unit="cell", disable=quiet or not sys.stderr.isatty())
        self.seen: dict[str, tuple[int, int]] = {}

    def cell(self, name: str, done: int, total: int) -> None:
        self.seen[name] = (done, total)
        self.bar.total = sum(total for _, total in self.seen.values())
        self.bar.n = sum(done for done, _ in self.seen.values())
        self.bar.set_description(name)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
