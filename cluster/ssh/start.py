"""A Dask cluster over ssh: the first host of the file runs the scheduler, every host runs a worker."""

import argparse
import sys
from pathlib import Path

from dask import config
from dask.distributed import SSHCluster

from asaplab.lab.cluster import CONFIGURATION, stay


def hosts(path: Path) -> list[str]:
    """The hosts of a file: one a line, blank lines and comments aside."""
    lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
    found = [line for line in lines if line]
    if not found:
        sys.exit(f"{path} names no host; write one host a line")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hosts", type=Path)
    parser.add_argument("--port", type=int, default=22, help="the ssh port of every host")
    parser.add_argument("--known-hosts", default=None, help="a known_hosts file other than your own")
    parser.add_argument("--key", default=None, help="a private key other than ssh's own choice")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop by itself after that long")
    args = parser.parse_args()
    found = hosts(args.hosts)
    connect = {"port": args.port}
    connect |= {"known_hosts": args.known_hosts} if args.known_hosts else {}
    connect |= {"client_keys": [args.key]} if args.key else {}
    with (
        config.set(CONFIGURATION),
        SSHCluster(
            [found[0], *found],
            connect_options=connect,
            worker_options={"nthreads": 1},
            scheduler_options={"port": 0, "dashboard_address": ":0"},
            remote_python=sys.executable,
        ) as cluster,
    ):
        print(f"workers: {len(found)}")
        stay(cluster, args.seconds)


if __name__ == "__main__":
    main()
