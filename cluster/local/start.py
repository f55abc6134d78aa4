"""A Dask cluster on this machine that lives until Ctrl-C or --seconds."""

import argparse
import time

from asaplab.lab.cluster import local


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop by itself after that long")
    args = parser.parse_args()
    with local(workers=args.workers) as cluster:
        print(f"scheduler: {cluster.scheduler_address}")
        print(f"dashboard: {cluster.dashboard_link.replace('/status', '/asap')}", flush=True)
        end = time.monotonic() + args.seconds
        try:
            while time.monotonic() < end:
                time.sleep(min(0.2, args.seconds))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
