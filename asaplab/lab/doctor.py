"""What works on this machine and what does not, with the fix beside it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from typing import NamedTuple


class Finding(NamedTuple):
    """One thing looked at: ``good`` is None where it is only a note."""

    topic: str
    good: bool | None
    says: str


def findings() -> list[Finding]:
    """Look at everything once; nothing is changed and nothing is reached over the network."""
    return [look() for look in (_python, _system, _cores, _memory, _shared_memory, _native, _torch, _gpu, _chromium)]


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 11), f"{platform.python_version()}; 3.11 or newer is needed")


def _system() -> Finding:
    if sys.platform.startswith("linux"):
        return Finding("system", True, "Linux: engine, twin, notebooks and reports work")
    return Finding(
        "system", None, f"{platform.system()}: twin, notebooks and reports work; the engine needs Linux or WSL2"
    )


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    note = "systems are compared in paced mode where devices outnumber cores"
    return Finding("cores", cores >= 2, f"{cores}; {note}")


def _memory() -> Finding:
    import psutil

    free = psutil.virtual_memory().available / 2**30
    return Finding("memory", free >= 4, f"{free:.1f} GiB available; the embedded checkpoints want 4")


def _shared_memory() -> Finding:
    if not hasattr(os, "memfd_create"):
        return Finding("shared memory", None, "no memfd here; the engine's primitives need Linux")
    free = shutil.disk_usage("/dev/shm").free / 2**30 if os.path.isdir("/dev/shm") else 0.0
    return Finding("shared memory", True, f"memfd works, /dev/shm has {free:.1f} GiB free")


def _native() -> Finding:
    return _extension(
        "native core",
        "asaplab.primitives._core",
        "the numpy reference serves, slower; install a C++ compiler and run pip install again",
    )


def _extension(topic: str, module: str, fix: str) -> Finding:
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    return Finding(topic, found or None, "built and found" if found else f"not built: {fix}")


def _torch() -> Finding:
    import torch

    return Finding("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")


def _gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        return Finding("gpu", True, f"{torch.cuda.get_device_name(0)}: asaplab bench superkernel measures it")
    return Finding("gpu", None, "none; nothing needs one")


def _chromium() -> Finding:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return Finding("browser", True if found else None, found or "no Chromium; only the browser tests need one")
