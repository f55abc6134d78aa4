"""Long benchmarks say how far they are and keep what they have, so that an interrupted one is not lost."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any


class Partial:
    """Progress on standard error; under ``out`` the result so far, as ``bench-NAME.json``."""

    def __init__(self, out: Path | None, name: str) -> None:
        self.path = None if out is None else out / f"bench-{name}.json"
        self.start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"asaplab bench [{time.monotonic() - self.start:5.0f} s] {text}", file=sys.stderr, flush=True)

    def keep(self, result: dict[str, Any], complete: bool = False) -> None:
        """Write the result so far; a reader never sees half a file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")
        draft.write_text(json.dumps(result | {"complete": complete, "machine": machine()}, indent=1))
        draft.replace(self.path)


def machine() -> dict[str, Any]:
    """Where a figure is from: processor, cores, memory, and how many other processes wanted them."""
    import psutil
    import torch

    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load": [round(load, 2) for load in os.getloadavg()],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
