"""The Dask cluster that runs notebooks and sweeps: where the settings of a target come from, and the local default."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
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

    with dask.config.set(CONFIGURATION), interrupts_left_to_parent():
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,
            host="127.0.0.1",
            dashboard_address=dashboard,
            silence_logs=50,  # what fails is reported by its task; workers only add how they stopped
        )


def stay(cluster: Any, seconds: float = float("inf")) -> None:
    """Say where a cluster is, and return on Ctrl-C or after that many seconds."""
    page = cluster.dashboard_link.replace("/status", "/asap")
    print(f"scheduler: {cluster.scheduler_address}\ndashboard: {page}", flush=True)
    end = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() < end:
            time.sleep(min(0.2, seconds))


@contextlib.contextmanager
def interrupts_left_to_parent() -> Iterator[None]:
    """Processes started in here ignore Ctrl-C: the parent hears it too and takes them down in order."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set what signals do
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
