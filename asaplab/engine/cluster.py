"""A Dask cluster with one worker process a device, on this machine.

Dask's own restarting, stealing and rebalancing are off: a device is not replaceable
in the middle of a run, and the parent decides what a lost one means.
"""

from __future__ import annotations

from collections.abc import Iterable

import dask
import distributed.utils
from distributed import Nanny, Scheduler, SpecCluster

from asaplab.engine.forks import main_left_alone, start_fork_server

CONFIGURATION = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": None,  # liveness is watched through process descriptors, not heartbeats
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": "30s",
    "distributed.admin.log-length": 1000,
    "distributed.scheduler.preload": ["asaplab.engine.telemetry", "asaplab.show.dashboard"],
}


class OneLife(Nanny):
    """A nanny whose worker lives once: a device that dies is reported, never restarted."""

    async def _on_worker_exit(self, exitcode: int) -> None:
        if self.status not in (distributed.core.Status.closing, distributed.core.Status.closed):
            await self.close(reason="device process ended")


def start_cluster(devices: Iterable[tuple[str, str]], *, dashboard: str = "127.0.0.1:0") -> SpecCluster:
    """A running cluster with a worker for every (name, role); everything binds to loopback.

    Each worker offers one unit of the resource that its role names, so that other work can be kept off devices.
    """
    start_fork_server()
    distributed.utils._forkserver_preload_set = True  # distributed would replace the list of preloads by its own
    options = {
        "nthreads": 1,
        "memory_limit": 0,
        "dashboard": False,
        "host": "127.0.0.1",
        "silence_logs": 50,
        "death_timeout": 60,
        "env": {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    }
    workers = {name: {"cls": OneLife, "options": {**options, "resources": {role.upper(): 1}}} for name, role in devices}
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": dashboard}}
    with dask.config.set(CONFIGURATION), main_left_alone():
        return SpecCluster(
            workers=workers, scheduler=scheduler, name="asaplab", silence_logs=50, shutdown_on_close=True
        )
