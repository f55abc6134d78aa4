"""A machine without a C++ compiler: installation succeeds, the numpy reference serves, the answers are right."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "runs", "_build", ".*cache*", "__pycache__", ".hypothesis")


@pytest.mark.slow
def test_installed_without_a_compiler_it_prefills_and_verifies(tmp_path):
    shutil.copytree(ROOT, tmp_path / "source", ignore=LEFT_OUT)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "venv")}))
    # the packages that are installed already; a plain path line, so that the editable asaplab does not come along
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib"))
    bare = os.environ | {"CC": "/bin/false", "CXX": "/bin/false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([python, *command], cwd=tmp_path, env=bare, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed", "./source")
    assert not list((packages / "asaplab").rglob("*.so"))
    doctor = json.loads(run("-m", "asaplab", "doctor", "--json").stdout)
    assert "the numpy reference serves" in json.dumps(doctor)
    shape = ("--attention", "2x1", "--experts", "2", "--rps", "8", "--limit", "8", "--length-scale", "0.02")
    report = json.loads(run("-m", "asaplab", "prefill", *shape, "--mode", "shared", "--verify", "--json").stdout)
    assert (report["completed"], report["excluded"]) == (8, 0)
