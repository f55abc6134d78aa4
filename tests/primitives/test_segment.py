"""Segments: owned by the parent and gone with it, refusals, bells, aborted waits, a forced core."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from asaplab.errors import InputError
from asaplab.primitives import backend
from asaplab.primitives import segment as segments
from asaplab.primitives.backend import core
from asaplab.primitives.segment import Aborted, Segment, abort
from tests.primitives.instance import instance, tokens

ROOT = Path(__file__).parents[2]


def test_two_mappings_show_the_same_memory():
    one = Segment.create("x", 10_000)
    two = Segment.open(one.path)
    one.tensor(8192, (3, 5), torch.bfloat16).fill_(2.5)
    assert two.tensor(8192, (3, 5), torch.bfloat16).sum() == 37.5
    assert (two.epoch, two.size) == (one.epoch, 10_000)
    one.close()
    with pytest.raises(InputError, match="its owner must be alive"):
        Segment.open(one.path)
    assert two.tensor(8192, (15,), torch.bfloat16).sum() == 37.5  # memory stays while it is looked at


def test_what_is_no_segment_is_refused(tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    with pytest.raises(InputError, match="is not a segment of asaplab"):
        Segment.open(str(tmp_path / "small"))
    (tmp_path / "other").write_bytes(bytes(8192))
    with pytest.raises(InputError, match="not a segment of this version"):
        Segment.open(str(tmp_path / "other"))


def test_a_segment_beyond_memory_is_one_sentence(monkeypatch):
    def full(fd, offset, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"segment big needs 5,000 bytes of memory that are not free"):
        Segment.create("big", 5000)
    monkeypatch.setattr(segments, "available_bytes", lambda: 6000)
    with pytest.raises(InputError, match=r"segment big needs 7,000 bytes of memory that are not free"):
        Segment.create("big", 7000)


def test_a_bell_wakes_and_a_wait_is_bounded():
    segment = Segment.create("x", 4096)
    heard, start = segment.bell(), time.monotonic()
    assert not segment.wait(heard, 0.02)
    assert time.monotonic() - start >= 0.02
    threading.Timer(0.05, segment.ring).start()
    assert segment.wait(heard, 20)
    assert segment.wait(heard, 0)  # what has rung since is heard at once
    segment.close()


def test_abort_ends_every_wait_promptly():
    with instance() as ports:
        port = ports.attention[0]
        x, ids = tokens(ports.dims, 4, torch.Generator().manual_seed(0))
        args = {"layer": 0, "batch": 0, "active": 3, "timeout_s": 60}
        ticket = port.async_dispatch_send(0, x, ids, **args)
        waits = [
            lambda: port.async_combine_recv(ticket, torch.empty(4, 2, 8), timeout_s=60),
            lambda: port.async_dispatch_send(0, x, ids, **args),  # nobody took the first rows
            lambda: ports.moe[0].own.wait(ports.moe[0].own.bell(), 60),
        ]
        ended = []

        def waiting(wait):
            try:
                wait()
            except Aborted:
                ended.append(wait)

        threads = [threading.Thread(target=waiting, args=(wait,)) for wait in waits]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        abort(ports.segments)
        for thread in threads:
            thread.join(10)
        assert len(ended) == 3


CHILD = """
import sys
from asaplab.primitives.segment import Segment
segment = Segment.create("lost", 1 << 20)
print(segment.path, flush=True)
sys.stdin.read()
"""


def test_segments_vanish_with_a_killed_parent():
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        path = child.stdout.readline().strip()
        mapped = Segment.open(path)
        named = {name for name in os.listdir("/dev/shm") if "asaplab" in name}
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        with pytest.raises(InputError, match="its owner must be alive"):
            Segment.open(path)
        assert not named  # there never was a name that could leak
        assert not mapped.wait(mapped.bell(), 0.01)  # whoever still maps it waits on, bounded
    finally:
        child.kill()
        child.communicate()


def test_a_killed_writer_leaves_no_half_message():
    """Rows without their flag are nobody's; the next send of that slot overwrites them."""
    with instance(E=1, E_total=1, K=1) as ports:
        port, moe = ports.attention[0], ports.moe[0]
        moe.own.tensor(port._areas.payload, (4,), torch.float32).fill_(-1)  # what a killed sender had written so far
        assert moe.complete() == []
        x = torch.full((2, 8), 3.0)
        port.async_dispatch_send(0, x, torch.zeros(2, 1, dtype=torch.int64), layer=0, batch=1, active=1, timeout_s=0)
        assert torch.equal(moe.async_dispatch_recv(0, 0, copy=True).x_mH, x)


def test_a_core_can_be_forced_and_nothing_else():
    assert backend.choose("numpy").__name__.endswith("reference")
    with pytest.raises(InputError, match="ASAPLAB_PRIMITIVES is 'cuda'; choose native or numpy"):
        backend.choose("cuda")


def test_without_a_native_core_numpy_serves_on_x86_only(monkeypatch):
    monkeypatch.setattr(backend, "_native", lambda: None)
    with pytest.raises(InputError, match="native core was not built; install asaplab with a compiler"):
        backend.choose("native")
    monkeypatch.setattr(backend.platform, "machine", lambda: "aarch64")
    with pytest.raises(InputError, match="rely on the memory order of x86, not of aarch64"):
        backend.choose(None)


def test_a_native_core_of_another_abi_is_refused(monkeypatch):
    class Other:
        ABI = backend.ABI + 1

    monkeypatch.setattr(backend.importlib, "import_module", lambda name: Other)
    with pytest.raises(ImportError, match="install asaplab again"):
        backend._native()


def test_spinning_only_where_processes_fit():
    assert backend.spins(len(os.sched_getaffinity(0)) + 1) == 0
    assert backend.spins(1) == backend.SPIN
    assert core.now_ns() > 0
