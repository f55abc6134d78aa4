"""Start-up is all or nothing, a lost device ends the run at once, and nothing is ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from asaplab import deploy
from asaplab.errors import AsapError, DeviceLost, InputError
from tests.engine.runs import workload

pytestmark = pytest.mark.slow


def device_processes(parent: int) -> list[psutil.Process]:
    """Everything below a process, however deep."""
    try:
        return psutil.Process(parent).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def gone(processes: list[psutil.Process], within_s: float) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    return not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def shared_memory() -> set[str]:
    return {p.name for p in Path("/dev/shm").iterdir()}


@pytest.mark.parametrize("victim", ["attention 0.0", "moe 1"])
def test_a_killed_device_ends_the_run_with_its_name(victim):
    import threading

    before = shared_memory()
    with (
        pytest.raises(DeviceLost, match=f"device '{victim}'"),
        deploy("tiny-qwen3-moe", mode="paced", pace=2000.0) as live,
    ):
        pids = dict(live.watch.pids)
        processes = [psutil.Process(pid) for pid in pids.values()]
        killer = threading.Timer(1.0, os.kill, (pids[victim], signal.SIGKILL))
        killer.start()
        began = time.monotonic()
        try:
            live.prefill(workload([200] * 400, gap_s=0.05))
        finally:
            assert time.monotonic() - began < 1.0 + 10.0
    assert gone(processes, 5.0)
    assert shared_memory() <= before


def test_the_killed_parent_leaves_no_process_and_no_memory():
    script = textwrap.dedent("""
        from asaplab import deploy
        from tests.engine.runs import workload
        if __name__ == "__main__":
            with deploy("tiny-qwen3-moe", mode="paced", pace=2000.0) as live:
                print("ready", flush=True)
                live.prefill(workload([200] * 400, gap_s=0.05))
    """)
    before = shared_memory()
    parent = _start(script)
    try:
        assert parent.stdout.readline().strip() == "ready"
        time.sleep(1.0)
        processes = device_processes(parent.pid)
        assert len(processes) >= 4
    finally:
        parent.kill()
        parent.wait()
    assert gone(processes, 10.0)
    assert shared_memory() <= before


def test_interrupt_stops_everything():
    script = textwrap.dedent("""
        from asaplab import deploy
        from tests.engine.runs import workload
        if __name__ == "__main__":
            try:
                with deploy("tiny-qwen3-moe", mode="paced", pace=2000.0) as live:
                    print("ready", flush=True)
                    live.prefill(workload([200] * 400, gap_s=0.05))
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    """)
    parent = _start(script)
    try:
        assert parent.stdout.readline().strip() == "ready"
        time.sleep(1.0)
        processes = device_processes(parent.pid)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to the whole process group
        out, _ = parent.communicate(timeout=30)
    finally:
        parent.kill()
        parent.wait()
    assert "interrupted" in out
    assert gone(processes, 10.0)


def _start(script: str) -> subprocess.Popen:
    path = Path(os.environ.get("PYTEST_TMP", "/tmp")) / f"asaplab-lifecycle-{os.getpid()}.py"
    path.write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def test_a_failed_start_stops_the_devices_that_had_started(tmp_path):
    """One expert tensor holds a NaN: its device refuses, the others go down with it."""
    from asaplab import models
    from tests.models.broken import poison

    models.tiny.write("tiny-qwen3-moe", tmp_path)
    poison(tmp_path, "model.layers.1.mlp.experts.9.up_proj.weight")
    before = {p.pid for p in device_processes(os.getpid())}
    with pytest.raises(AsapError, match=r"experts\.9\.up_proj"), deploy(tmp_path, mode="shared"):
        pass
    left = [p for p in device_processes(os.getpid()) if p.pid not in before and "worker" in " ".join(p.cmdline())]
    assert gone(left, 5.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attention": (1, 3)}, "heads"),
        ({"experts": 17}, "16 experts"),
        ({"attention": (0, 1)}, "D is 0"),
        ({"mode": "fast"}, "paced"),
        ({"dtype": "int4"}, "int4"),
        ({"system": "nobody"}, "no system 'nobody'"),
        ({"max_batch_tokens": 1 << 40}, "memory"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_process_starts(options, sentence):
    before = len(device_processes(os.getpid()))
    with pytest.raises(InputError, match=sentence), deploy("tiny-deepseek-v3", **options):
        pass
    assert len(device_processes(os.getpid())) <= before
