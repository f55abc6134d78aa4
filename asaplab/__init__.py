"""asaplab: a laboratory for asynchronous attention/expert disaggregation in MoE prefill.

The names below load on first use, so that ``import asaplab`` costs nothing and device processes stay small.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "Batching": "asaplab.core",
    "Instance": "asaplab.core",
    "Pipeline": "asaplab.core",
    "Placement": "asaplab.core",
    "Run": "asaplab.core",
    "System": "asaplab.core",
    "Transport": "asaplab.core",
    "Workload": "asaplab.core",
    "AsapError": "asaplab.errors",
    "deploy": "asaplab.engine",
    "simulate": "asaplab.twin",
    "slo": "asaplab.lab.slo",
    "search": "asaplab.lab.search",
    "claims": "asaplab.lab.claims",
    "named": "asaplab.scheduler",
}
__all__ = [*_LAZY, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'asaplab' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
