"""The bench of the primitives on a small scale: every peer moves the same rows to every receiver, and back."""

import pytest

from asaplab.lab import bench_star
from asaplab.lab.bench_primitives import HIDDEN, TOP_K, cast, measure, memcpy_ratio, points, receivers, result
from asaplab.lab.bench_rank import LAST, MPI_WAYS, WAYS, busy_slices, expert_ids
from asaplab.primitives.backend import core
from asaplab.primitives.layout import Dims

TOKENS = 4


@pytest.fixture(scope="module")
def star():
    with receivers(2) as made:
        yield made


def dims(star, size):
    return Dims(D=1, T=1, E=star.count, E_total=256, K=TOP_K, H=HIDDEN, S=TOKENS, Dsize=size, copies=TOP_K)


@pytest.mark.slow
def test_peers_are_measured_in_turn_and_ratios_are_over_async(star):
    assert star.peers == (*WAYS, *(MPI_WAYS if bench_star.mpiexec() else ()), *LAST)
    with cast(star, TOKENS) as ready:
        for busy in (False, True):
            rows = {row["peer"]: row for row in measure(star, ready, busy, 2)}
            assert tuple(rows) == star.peers
            assert rows["async"]["blocked_ratio"] == rows["async"]["delivered_ratio"] == 1
            for row in rows.values():
                assert (row["tokens"], row["receivers"], row["busy"]) == (TOKENS, 2, busy)
                assert row["bytes"] == TOKENS * TOP_K * HIDDEN * 2
                assert 0 < row["posted_us"] <= row["blocked_us"]
                assert row["private_us"] >= row["delivered_us"] > 0
                assert row["blocked_ratio"] == pytest.approx(row["blocked_us"] / rows["async"]["blocked_us"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2], ids=["int8", "bfloat16"])
def test_every_way_leaves_the_same_rows_with_the_receivers(star, size):
    star.prepare(dims(star, size), ("dispatch", "combine"), star.peers)
    try:
        left = {}
        for way in star.peers[:-1]:
            star.transfer("memcpy", "dispatch", False)
            star.transfer(way, "dispatch", False)
            left[way] = star.row_sums()[1:]
        assert all(sums == left["async"] for sums in left.values())
        rows = [len(sums) for sums in left["async"]]
        assert sum(rows) == TOKENS * TOP_K
        assert len({value for sums in left["async"] for value in sums}) == TOKENS  # each token is a row of its own
    finally:
        star.forget()


@pytest.mark.slow
def test_combine_brings_every_spokes_rows_back(star):
    star.prepare(dims(star, 2), ("dispatch", "combine"), star.peers)
    try:
        for way in star.peers[:-1]:
            # rows of a spoke hold its rank, until a dispatch overwrites them
            star.transfer(way, "combine", True)
            hub, *spokes = star.row_sums()
            assert sorted(hub) == sorted(value for spoke in spokes for value in spoke)
    finally:
        star.forget()


def test_busy_receivers_are_met_within_a_slice_and_then_compute_whole_ones():
    pause = busy_slices("computing", 3)
    lengths = []
    for _ in range(2):
        start = core.now_ns()
        assert pause()
        lengths.append(core.now_ns() - start)
    assert lengths[1] >= 2_000_000
    first = busy_slices("waiting", 4)
    start = core.now_ns()
    first()
    assert core.now_ns() - start > 0


def test_tokens_choose_different_experts():
    ids = expert_ids(64, Dims(D=1, T=1, E=4, E_total=256, K=TOP_K, H=HIDDEN, S=64))
    assert all(len(set(row)) == TOP_K for row in ids.tolist())


def test_quick_has_what_the_goals_are_stated_for():
    have = {
        (p.tokens, p.dtype, primitive, busy) for p in points(True, 4) for primitive in p.primitives for busy in p.busy
    }
    for wanted in ((1024, False), (1024, True), (8192, False)):
        assert (wanted[0], "bfloat16", "dispatch", wanted[1]) in have
    assert (1024, "int8", "dispatch", False) in have
    assert (1024, "bfloat16", "combine", False) in have


def row(peer, delivered_ratio, **changes):
    where = {"tokens": 8192, "receivers": 4, "busy": False, "dtype": "bfloat16", "primitive": "dispatch"}
    return where | {"peer": peer, "delivered_ratio": delivered_ratio} | changes


def test_rows_are_sorted_by_what_they_measure():
    rows = [
        row("async", 1.0),
        row("memcpy", 0.9),
        row("async", 1.0, dtype="int8"),
        row("async", 1.0, primitive="combine"),
    ]
    found = result(rows, ["mpi"])
    assert found["memcpy_ratio"] == 0.9
    assert [len(found[key]) for key in ("rows", "rows_int8", "rows_combine")] == [2, 1, 1]
    assert memcpy_ratio([row("memcpy", 0.9, busy=True)]) is None


def test_without_mpi4py_there_is_no_launcher(monkeypatch):
    monkeypatch.setattr(bench_star.importlib.util, "find_spec", lambda name: None)
    assert bench_star.mpiexec() is None
