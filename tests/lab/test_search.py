"""Design-space search: memory, the space that is searched, its answer on a small problem."""

import pytest

from asaplab.core import Instance
from asaplab.errors import InputError
from asaplab.lab.search import candidates, memory_of, search
from asaplab.profiles.named import profile_of
from asaplab.profiles.shapes import model_of
from asaplab.scheduler import named

V32, DIE = model_of("deepseek-v3.2"), profile_of("cloudmatrix384")


def test_candidates_use_every_device_divide_the_heads_and_fit_into_memory():
    found = candidates(32, named("asap"), V32, DIE)
    assert Instance(D=4, T=4, E=16) in found
    for i in found:
        need = memory_of(named("asap"), V32, DIE, i)
        assert i.devices == 32
        assert V32.heads % i.T == 0
        assert max(need.attention, need.moe) <= DIE.memory.value


def test_the_papers_experts_fill_41_of_64_gb():
    weights = memory_of(named("asap"), V32, DIE, Instance(D=1, T=4, E=16))
    buffers = V32.H * V32.K * 32768 * 2  # one DP group, two slots of one-byte elements
    assert weights.moe - buffers - 4e9 == pytest.approx(58 * 16 * 3 * 7168 * 2048)


def test_too_few_devices_for_the_model_are_refused():
    with pytest.raises(InputError, match=r"no instance of 4 devices holds deepseek-v3\.2 in 64 GB"):
        search(devices=4)


def test_colocated_systems_are_refused():
    with pytest.raises(InputError, match="colocated"):
        search(system="default")


@pytest.mark.slow
def test_search_is_at_least_as_good_as_every_candidate_it_played():
    found = search(
        devices=8, model="qwen3-30b", slo_s=0.5, duration_s=30.0, repeats=1, finalists=4, workers=1, profile="h200"
    )
    best = found["best"]
    assert best["D"] * best["T"] + best["E"] == 8
    assert found["candidates"][0]["slo_rps"] == max(row["slo_rps"] for row in found["candidates"])
    assert best["slo_rps"] <= found["roofline_rps"]
