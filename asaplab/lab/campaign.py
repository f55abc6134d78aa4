"""A batch: notebooks through papermill as Dask tasks; progress by cell, resumable, failures reported and survived."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asaplab
from asaplab.errors import InputError
from asaplab.lab.notebooks import known_parameters, numbered, recipe_of
from asaplab.lab.recipes import recipe

TOPIC = "asap-notebooks"
CELL_LIMIT_S = {"smoke": 300, "paper": 3600}  # a cell that runs longer fails its notebook, not the batch

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one notebook: ``done``, ``kept`` from an earlier batch, or ``failed`` at a cell with an error."""

    name: str
    status: str
    seconds: float
    folder: str
    cell: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One notebook to run: everything that a worker needs, as plain values."""

    path: str
    folder: str
    body: str
    parameters: Mapping[str, Any]
    fingerprint: str
    cell_limit_s: int


def plan(*, scale: str, only: Sequence[str], out: Path, changes: Mapping[str, Any]) -> list[Job]:
    """The jobs of a batch; nothing has run yet.

    Raises:
        InputError: an unknown notebook or scale, or a parameter that a chosen notebook does not have.
    """
    jobs = []
    for path in numbered(only):
        parameters = {"scale": scale, **changes, "out": str((out / path.stem).resolve())}
        known = known_parameters(path)
        for name in parameters:
            if name not in known:
                raise InputError(f"notebook {path.name} has no parameter {name!r}; it has {', '.join(known)}")
        settings = recipe(recipe_of(path), **parameters)
        jobs.append(
            Job(
                path=str(path),
                folder=parameters["out"],
                body=settings.body,
                parameters=parameters,
                fingerprint=_fingerprint(path, parameters),
                cell_limit_s=CELL_LIMIT_S[scale],
            )
        )
    return jobs


def execute(jobs: Sequence[Job], *, workers: int = 2, progress: Progress | None = None) -> list[Outcome]:
    """Run the jobs on a local Dask cluster and return an outcome each, in the order of the jobs.

    Engine notebooks run one at a time with nothing beside them, because they measure; twin notebooks run together.
    A job whose notebook, parameters and package are unchanged since it last succeeded is kept.
    """
    outcomes = {job.path: kept for job in jobs if (kept := _kept(job))}
    waiting = [job for job in jobs if job.path not in outcomes]
    if waiting:
        outcomes |= _on_dask(waiting, workers, progress or (lambda name, done, total: None))
    return [outcomes[job.path] for job in jobs]


def _on_dask(jobs: Sequence[Job], workers: int, progress: Progress) -> dict[str, Outcome]:
    from distributed import Client, as_completed

    from asaplab.lab.cluster import local

    alone = [job for job in jobs if job.body == "engine"]
    together = [job for job in jobs if job.body == "twin"]
    outcomes: dict[str, Outcome] = {}
    with local(workers=max(1, min(workers, len(jobs)))) as cluster, Client(cluster) as client:
        client.subscribe_topic(TOPIC, lambda event: progress(*event[1]))
        for group in [[job] for job in alone] + [together]:
            futures = [client.submit(run_notebook, job, pure=False, retries=0) for job in group]
            for future in as_completed(futures):
                outcome = _outcome_of(future, group[futures.index(future)])
                outcomes[next(job.path for job in group if Path(job.path).stem == outcome.name)] = outcome
    return outcomes


def _outcome_of(future: Any, job: Job) -> Outcome:
    if future.status == "finished":
        return future.result()
    error = future.exception(timeout=10)
    sentence = f"{type(error).__name__}: {error}"
    return Outcome(name=Path(job.path).stem, status="failed", seconds=0.0, folder=job.folder, error=sentence)


def run_notebook(job: Job) -> Outcome:
    """Execute one notebook in a kernel of its own; runs on a Dask worker."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    from asaplab.lab.kernel import register

    folder, name = Path(job.folder), Path(job.path).stem
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "done.json").unlink(missing_ok=True)
    start = time.monotonic()
    try:
        papermill.execute_notebook(
            job.path,
            str(folder / f"{name}.ipynb"),
            parameters=dict(job.parameters),
            engine_name=register(name, _report_cell(name)),
            kernel_name="python3",
            cwd=str(folder),
            progress_bar=False,
            start_timeout=60,
            execution_timeout=job.cell_limit_s,
        )
    except PapermillExecutionError as error:
        sentence = f"{error.ename}: {error.evalue}"
        spent = round(time.monotonic() - start, 2)
        return Outcome(
            name=name, status="failed", seconds=spent, folder=job.folder, cell=error.cell_index, error=sentence
        )
    outcome = Outcome(name=name, status="done", seconds=round(time.monotonic() - start, 2), folder=job.folder)
    (folder / "done.json").write_text(json.dumps(asdict(outcome) | {"fingerprint": job.fingerprint}))
    return outcome


def _report_cell(name: str) -> Callable[[int, int], None]:
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # run by hand, outside a cluster
        return lambda done, total: None
    return lambda done, total: worker.log_event(TOPIC, (name, done, total))


def _kept(job: Job) -> Outcome | None:
    try:
        done = json.loads((Path(job.folder) / "done.json").read_text())
    except (OSError, ValueError):
        return None
    if done.pop("fingerprint", None) != job.fingerprint:
        return None
    return Outcome(**done | {"status": "kept"})


def _fingerprint(path: Path, parameters: Mapping[str, Any]) -> str:
    """One number for all inputs of a notebook: its source, its parameters and the package's own source."""
    digest = hashlib.sha256(path.read_bytes())
    digest.update(json.dumps(parameters, sort_keys=True, default=str).encode())
    for source in sorted(Path(asaplab.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()
