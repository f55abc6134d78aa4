"""asaplab workers as Slurm jobs; --print shows the job script and submits nothing."""

import argparse
from pathlib import Path

import yaml
from dask import config
from dask_jobqueue import SLURMCluster
from dask_jobqueue.slurm import SLURMJob

from asaplab.lab.cluster import CONFIGURATION, stay


def settings() -> dict:
    """The keyword arguments of one job, from jobqueue.yaml."""
    text = Path(__file__).with_name("jobqueue.yaml").read_text()
    given = yaml.safe_load(text)["jobqueue"]["slurm"]
    return {name.replace("-", "_"): value for name, value in given.items()}


def job_script() -> str:
    """The script that sbatch would get, with the scheduler's address left open."""
    given = settings()
    given["job_name"] = given.pop("name")
    return SLURMJob(scheduler="tcp://SCHEDULER:8786", name="asaplab", **given).job_script()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true", dest="show")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    if args.show:
        print(job_script())
        return
    given = settings()
    given["job_name"] = given.pop("name")
    with config.set(CONFIGURATION), SLURMCluster(**given) as cluster:
        cluster.scale(jobs=args.jobs)
        stay(cluster)


if __name__ == "__main__":
    main()
