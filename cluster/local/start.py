"""A Dask cluster on this machine that lives until Ctrl-C or --seconds."""

import argparse

from asaplab.lab.cluster import local, stay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop by itself after that long")
    args = parser.parse_args()
    with local(workers=args.workers) as cluster:
        stay(cluster, args.seconds)


if __name__ == "__main__":
    main()
