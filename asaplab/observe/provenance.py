"""Where a result comes from: versions, processor, seed, trace and commit. Names no user, host or path."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import asaplab
from asaplab.core import Workload

_PACKAGES = ("numpy", "torch", "numba", "distributed", "transformers")


def provenance(workload: Workload | None = None, **more: Any) -> dict[str, Any]:
    """What one needs to run a result again; ``more`` is added as it is."""
    record: dict[str, Any] = {
        "asaplab": asaplab.__version__,
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "system": platform.platform(terse=True),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "commit": _commit(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if workload is not None:
        record |= {"workload": workload.name, "seed": workload.seed, "source": dict(workload.source)}
    return record | more


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _commit() -> str | None:
    """The commit of the checkout that asaplab runs from, "+" when it has changes; None for an installed wheel."""
    root = Path(asaplab.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()
