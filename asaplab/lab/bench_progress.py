"""Long benchmarks say how far they are and keep what they have, so that an interrupted one is not lost."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asaplab.observe.provenance import provenance

Tell = Callable[[str, dict[str, Any]], None]  # hears after every run a line of progress and the result so far


class Partial:
    """Progress on standard error; under ``out`` the result so far, as ``bench-NAME.json``."""

    def __init__(self, out: Path | None, name: str) -> None:
        self.path = None if out is None else out / f"bench-{name}.json"
        self.start = time.monotonic()

    def before(self) -> dict[str, Any]:
        """What an earlier run on this machine left under ``out``, if there is any."""
        if self.path is None or not self.path.exists():
            return {}
        kept: dict[str, Any] = json.loads(self.path.read_text())
        there, here = kept.pop("machine"), machine()
        kept.pop("complete")
        same = all(there[key] == here[key] for key in ("processor", "cores", "cpu_capability", "torch"))
        return kept if same else {}

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


def moment() -> dict[str, Any]:
    """When, and how many processes wanted the cores, on the average of five minutes."""
    return {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "load": round(os.getloadavg()[1], 2)}


def machine() -> dict[str, Any]:
    """Where a figure is from: its provenance, the memory, and how many other processes wanted the cores."""
    import psutil
    import torch

    here = provenance()
    return {
        "processor": here["cpu"],
        "cores": here["cores"],
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load": [round(load, 2) for load in os.getloadavg()],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": here["packages"]["torch"],
        "python": here["python"],
        "when": here["when"],
    }
