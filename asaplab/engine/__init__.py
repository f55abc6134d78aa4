"""The engine: real processes, real tensors, real shared memory (sections 3.2-3.5). ``deploy`` is the way in."""

from __future__ import annotations

from typing import Any

__all__ = ["Deployment", "deploy", "verify"]


def __getattr__(name: str) -> Any:
    """Load on first use: device processes import their own loop only."""
    if name in ("Deployment", "deploy"):
        from asaplab.engine.forks import in_child, start_fork_server

        if not in_child():  # a child that only imports this must not start processes
            start_fork_server()  # it loads torch while this process does
        from asaplab.engine import deployment

        return getattr(deployment, name)
    if name == "verify":
        from asaplab.engine.verification import verify

        return verify
    raise AttributeError(f"module 'asaplab.engine' has no attribute {name!r}")
