"""A worker for every CUDA device of this machine, each seeing only its own."""

import argparse
import sys

from dask import config
from distributed import Nanny, Scheduler, SpecCluster

from asaplab.lab.cluster import CONFIGURATION, stay


def workers(devices: int) -> dict:
    """Dask's worker specification: the device is hidden from all other workers by its environment."""
    shared = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1", "resources": {"GPU": 1}}
    return {
        f"cuda-{i}": {
            "cls": Nanny,
            "options": shared | {"env": {"CUDA_VISIBLE_DEVICES": str(i), "OMP_NUM_THREADS": "1"}},
        }
        for i in range(devices)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=None, help="how many (default: all that torch sees)")
    parser.add_argument("--print", action="store_true", dest="show")
    args = parser.parse_args()
    devices = args.devices
    if devices is None:
        import torch

        devices = torch.cuda.device_count()
    if devices < 1:
        sys.exit("torch sees no CUDA device here; use cluster/local")
    if args.show:
        for name, spec in workers(devices).items():
            print(name, "sees device", spec["options"]["env"]["CUDA_VISIBLE_DEVICES"])
        return
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}}
    with config.set(CONFIGURATION), SpecCluster(workers=workers(devices), scheduler=scheduler) as cluster:
        stay(cluster)


if __name__ == "__main__":
    main()
