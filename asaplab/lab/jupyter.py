"""JupyterLab as asaplab opens it: the notebooks in a folder of the user's, everything on loopback with a token."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from asaplab.errors import InputError
from asaplab.lab.cluster import interrupts_left_to_parent
from asaplab.lab.notebooks import folder


def copy_notebooks(target: Path) -> list[Path]:
    """Copy the shipped notebooks to ``target``; a notebook that is already there is the user's and stays as it is.

    Raises:
        InputError: the target is a file.
    """
    if target.exists() and not target.is_dir():
        raise InputError(f"--notebooks is {str(target)!r}, which is a file; name a folder")
    target.mkdir(parents=True, exist_ok=True)
    copied = []
    for source in sorted(folder().glob("*.ipynb")):
        copy = target / source.name
        if not copy.exists():
            shutil.copyfile(source, copy)
            copied.append(copy)
    return copied


def arguments(target: Path, *, port: int, browser: bool) -> list[str]:
    """The command line that starts JupyterLab: loopback only, its own token, no news prompt."""
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ip=127.0.0.1",
        f"--port={port}",
        f"--ServerApp.root_dir={target}",
        f"--LabApp.default_url={'/lab/tree/00_index.ipynb' if (target / '00_index.ipynb').exists() else '/lab'}",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    ]


def environment(scheduler: str | None) -> dict[str, str]:
    """The server's environment.

    Kernels find the Dask scheduler of this lab in DASK_SCHEDULER_ADDRESS. JupyterLab finds defaults of ours behind the
    user's own: no news prompt, and outputs that stay alive when they are scrolled away.
    """
    config = [os.environ.get("JUPYTER_CONFIG_PATH"), str(Path(__file__).with_name("jupyter_config"))]
    own = {"JUPYTER_CONFIG_PATH": os.pathsep.join(path for path in config if path)}
    return dict(os.environ) | own | ({"DASK_SCHEDULER_ADDRESS": scheduler} if scheduler else {})


def serve(command: Sequence[str], env: dict[str, str]) -> int:
    """Run JupyterLab until it is stopped; Ctrl-C stops it once, and its kernels with it."""
    with interrupts_left_to_parent():  # two signals at once leave JupyterLab hanging
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout=30)  # kernels are asked to end first
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
