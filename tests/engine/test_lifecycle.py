"""Start-up is all or nothing, a lost device ends the run at once, and nothing is ever left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file, save_file

from asaplab import deploy, models
from asaplab.errors import DeviceLost, InputError, Stalled
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


def released(before: set[str], within_s: float) -> bool:
    """Nothing new is left; Python's resource tracker unlinks the semaphores of a killed parent a moment later."""
    until = time.monotonic() + within_s
    while shared_memory() - before:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("victim", ["attention 0.0", "moe 1"])
def test_a_killed_device_ends_the_run_with_its_name(victim):
    before = shared_memory()
    processes: list[psutil.Process] = []

    def run_and_kill() -> None:
        with deploy("tiny-qwen3-moe", mode="paced", pace=2000.0) as live:
            processes.extend(psutil.Process(pid) for pid in live.watch.pids.values())
            threading.Timer(1.0, os.kill, (live.watch.pids[victim], signal.SIGKILL)).start()
            live.prefill(workload([200] * 400, gap_s=0.05))

    with pytest.raises(DeviceLost, match=f"device '{victim}'"):
        run_and_kill()
    assert gone(processes, 5.0)
    assert released(before, 10.0)


def test_the_run_ends_within_ten_seconds_of_the_loss():
    with deploy("tiny-qwen3-moe", mode="paced", pace=2000.0) as live:
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            os.kill(live.watch.pids["moe 0"], signal.SIGKILL)

        threading.Timer(1.0, kill).start()
        with pytest.raises(DeviceLost):
            live.prefill(workload([200] * 400, gap_s=0.05))
        assert time.monotonic() - killed[0] < 2.0
        closing = time.monotonic()
    assert time.monotonic() - closing < 8.0


def test_a_stopped_device_is_found_by_its_missing_progress():
    """A process that is there but does nothing: health is progress, not presence."""
    with deploy("tiny-qwen3-moe", mode="paced", pace=2000.0, stall_s=3.0) as live:
        threading.Timer(1.0, os.kill, (live.watch.pids["moe 1"], signal.SIGSTOP)).start()
        began = time.monotonic()
        with pytest.raises(Stalled, match="moe 1 is silent"):
            live.prefill(workload([200] * 400, gap_s=0.01))
        assert time.monotonic() - began < 10.0
        with pytest.raises(DeviceLost, match="deploy it again"):
            live.prefill(workload([10]))


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
        parent.stdout.close()
    assert gone(processes, 10.0)
    assert released(before, 10.0)


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
        parent.stdout.close()
    assert "interrupted" in out
    assert gone(processes, 10.0)


def _start(script: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def test_a_failed_start_stops_the_devices_that_had_started(tmp_path):
    """One expert tensor holds a NaN: its device refuses, the others go down with it."""
    models.tiny.write("tiny-qwen3-moe", tmp_path)
    path = tmp_path / "model.safetensors"
    state = load_file(path)
    state["model.layers.1.mlp.experts.9.up_proj.weight"][0, 0] = float("nan")
    save_file(state, path)
    before = set(device_processes(os.getpid()))
    with pytest.raises(InputError, match=r"experts\.9\.up_proj"), deploy(tmp_path, mode="shared"):
        pass
    assert gone([p for p in device_processes(os.getpid()) if p not in before and p.ppid() != os.getpid()], 5.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attention": (1, 3)}, "heads"),
        ({"experts": 17}, "16 experts"),
        ({"attention": (0, 1)}, "D is 0"),
        ({"mode": "fast"}, "paced"),
        ({"dtype": "int4"}, "int4"),
        ({"system": "nobody"}, "no system 'nobody'"),
        ({"system": "step3"}, "use asaplab simulate"),
        ({"max_batch_tokens": 1 << 40}, "memory"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_process_starts(options, sentence):
    def started() -> set[int]:
        """Grandchildren: what the fork server forked."""
        return {p.pid for p in device_processes(os.getpid()) if p.ppid() != os.getpid()}

    before = started()
    with pytest.raises(InputError, match=sentence), deploy("tiny-deepseek-v3", **options):
        pass
    assert started() <= before


def test_importing_deploy_in_a_spawned_child_starts_nothing():
    """A script that imports asaplab at its top may use multiprocessing for itself."""
    script = textwrap.dedent("""
        import multiprocessing
        from asaplab import deploy

        def child(queue):
            queue.put(deploy.__name__)

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.SimpleQueue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            process.join(60)
            assert process.exitcode == 0
            print(queue.get())
    """)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(script)
        file.flush()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run([sys.executable, file.name], capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout.strip() == "deploy", done.stderr
