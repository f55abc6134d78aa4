"""Every cluster target starts, or renders what it would submit."""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"


def start(*words: str, timeout: float = 90) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_local_starts_and_stops_by_itself():
    said = start(str(CLUSTER / "local" / "start.py"), "--workers", "1", "--seconds", "0.5")
    assert "scheduler: tcp://127.0.0.1:" in said
    assert said.strip().endswith("/asap")


def test_local_configuration_is_the_one_in_use():
    from asaplab.lab.cluster import CONFIGURATION

    written = yaml.safe_load((CLUSTER / "local" / "dask.yaml").read_text())

    def flat(tree: dict, prefix: str = "") -> dict:
        found: dict = {}
        for key, value in tree.items():
            found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
        return found

    assert flat(written) == CONFIGURATION


@contextlib.contextmanager
def ssh_server(folder: Path):
    """An ssh server of our own on a free loopback port, with keys made for the test."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None:
        pytest.skip("no sshd on this machine")
    pytest.importorskip("asyncssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copyfile(folder / "user.pub", folder / "authorized")
    (folder / "authorized").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "PermitRootLogin": "prohibit-password",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    Path("/run/sshd").mkdir(exist_ok=True)
    process = subprocess.Popen([server, "-D", "-e", "-f", str(folder / "config")], stderr=subprocess.DEVNULL)
    host_key = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"[localhost]:{port},[127.0.0.1]:{port} {' '.join(host_key)}\n")
    try:
        for _ in range(100):
            time.sleep(0.05)
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="an ssh server of one's own needs root")
def test_ssh_to_localhost_starts(tmp_path):
    with ssh_server(tmp_path) as port:
        said = start(
            str(CLUSTER / "ssh" / "start.py"),
            str(CLUSTER / "ssh" / "hosts.txt"),
            *("--port", str(port), "--key", str(tmp_path / "user"), "--known-hosts", str(tmp_path / "known")),
            *("--seconds", "1"),
        )
    assert "scheduler: tcp://" in said
    assert "workers: 1" in said


def test_slurm_job_asks_for_what_the_configuration_says():
    script = start(str(CLUSTER / "slurm" / "start.py"), "--print")
    for line in ("#SBATCH -J asaplab", "#SBATCH --cpus-per-task=8", "#SBATCH --exclusive", "#SBATCH -t 01:00:00"):
        assert line in script
    assert "export OMP_NUM_THREADS=1" in script
    assert "--nthreads 1" in script
    assert "--nworkers 8" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_kubernetes_cluster_is_what_the_operator_wants():
    cluster = yaml.safe_load((CLUSTER / "kubernetes" / "cluster.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    scheduler = cluster["spec"]["scheduler"]
    (container,) = scheduler["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in scheduler["service"]["ports"]:
        assert ports[port["targetPort"]] == port["port"]
    assert scheduler["service"]["type"] == "ClusterIP"
    assert "asaplab.show.dashboard" in container["args"]
    (worker,) = cluster["spec"]["worker"]["spec"]["containers"]
    assert worker["image"] == container["image"]


def test_cuda_workers_see_one_device_each():
    workers = runpy.run_path(str(CLUSTER / "cuda" / "start.py"))["workers"](3)
    seen = [spec["options"]["env"]["CUDA_VISIBLE_DEVICES"] for spec in workers.values()]
    assert seen == ["0", "1", "2"]
    assert {spec["options"]["nthreads"] for spec in workers.values()} == {1}
