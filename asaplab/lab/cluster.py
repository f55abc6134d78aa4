"""The Dask cluster that runs notebooks and sweeps: where the settings of a target come from, and the local default."""

from __future__ import annotations

from typing import Any

# Notebooks start processes of their own, which a worker killed for its memory would leave behind: no memory limit.
# Engine notebooks measure: nothing may be stolen from or moved to the worker next to them.
CONFIGURATION = {
    "distributed.scheduler.preload": ["asaplab.show.dashboard"],
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
}


def local(*, workers: int, dashboard: str = "127.0.0.1:0") -> Any:
    """A cluster of single-threaded worker processes on this machine, bound to loopback, with the /asap page."""
    import dask
    from distributed import LocalCluster

    with dask.config.set(CONFIGURATION):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            host="127.0.0.1",
            dashboard_address=dashboard,
            silence_logs=40,
        )
