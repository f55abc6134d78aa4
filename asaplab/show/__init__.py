"""Figures of runs. Each loads on first use, so that importing the package does not load plotly."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_LAZY = {
    "busy_window": "asaplab.show.window",
    "gantt": "asaplab.show.pipeline",
    "mailboxes": "asaplab.show.boxes",
    "ttft_by_length": "asaplab.show.ttft",
    "ttft_over_rps": "asaplab.show.ttft",
    "ttft_parts": "asaplab.show.parts",
    "utilization": "asaplab.show.parts",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'asaplab.show' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
