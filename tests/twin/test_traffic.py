"""Prefix caches, several instances, prompts beyond S."""

from dataclasses import replace

import numpy as np
import pytest

from asaplab import workload
from asaplab.core import TTFT_PARTS
from asaplab.errors import InputError
from asaplab.twin import setting_of, simulate, simulate_cluster
from asaplab.twin.prefix import cached_tokens


def blocks(*rows):
    tokens = np.array([512 * len(row) for row in rows])
    arrivals = np.arange(len(rows), dtype=float)
    return replace(
        workload.poisson(rps=1, requests=len(rows)), arrival_s=arrivals, tokens=tokens, hash_ids=rows, block_tokens=512
    )


def test_leading_blocks_hit_and_the_last_token_is_computed():
    hits = cached_tokens(blocks((1, 2, 3), (1, 2, 4), (9, 2, 3), (1, 2, 3)), 512 * 100)
    assert hits.tolist() == [0, 1024, 0, 1535]


def test_the_least_recently_used_block_leaves_first():
    hits = cached_tokens(blocks((1, 2), (3,), (1, 2)), 512 * 2)
    assert hits.tolist() == [0, 0, 0]
    assert cached_tokens(blocks((1, 2), (3,), (1, 2)), 512 * 3).tolist() == [0, 0, 1023]


@pytest.mark.parametrize("system", ["asap", "chunked"])
def test_hits_save_work_but_not_attention_to_what_is_cached(system):
    repeated = blocks(*[tuple(range(20))] * 6)
    repeated = replace(repeated, arrival_s=repeated.arrival_s * 10)
    cold = simulate(repeated, system).requests
    warm = simulate(repeated, system, prefix_cache_tokens=1e6)
    one_token = simulate(replace(repeated, tokens=np.ones(6, int), hash_ids=None), system).requests
    assert warm.configuration["cached_tokens"] == 5 * (20 * 512 - 1)
    assert warm.requests["ttft_s"][0] == pytest.approx(cold["ttft_s"][0])
    assert one_token["attention"][1] < warm.requests["attention"][1] < 0.2 * cold["attention"][1]


def test_a_cache_needs_hash_ids():
    with pytest.raises(InputError, match="no hash_ids"):
        simulate(workload.poisson(rps=1, requests=3), prefix_cache_tokens=1e6)


def test_two_instances_at_twice_the_rate_serve_as_well_as_one():
    one = simulate(workload.poisson(rps=6, duration_s=300, seed=1)).requests["ttft_s"].mean()
    both = workload.poisson(rps=12, duration_s=300, seed=1)
    means = {b: simulate_cluster(both, balance=b).requests["ttft_s"].mean() for b in ("round_robin", "least_loaded")}
    assert means["round_robin"] == pytest.approx(one, rel=0.15)
    assert means["least_loaded"] < 1.05 * means["round_robin"]


def test_prompts_beyond_S_are_excluded_or_served_apart():
    mixed = workload.poisson(rps=1, requests=60, seed=2, max_tokens=100_000, lengths=np.array([3000, 60_000]))
    beyond = int((mixed.tokens > 32768).sum())
    assert 0 < beyond < 60
    without = simulate_cluster(mixed, instances=1)
    assert without.excluded == beyond
    assert len(without.requests["id"]) == 60 - beyond
    served = simulate_cluster(mixed, instances=1, sequence_parallel=True)
    columns = served.requests
    assert served.excluded == 0
    assert np.isfinite(columns["ttft_s"]).all()
    np.testing.assert_allclose(sum(columns[part] for part in TTFT_PARTS), columns["ttft_s"])
    assert (columns["instance"] == -1).sum() == beyond


@pytest.mark.parametrize(("attention", "experts", "cut"), [((4, 4), 16, (8, 4, 32)), ((2, 8), 16, (4, 8, 32))])
def test_a_colocated_system_gets_as_many_devices_as_the_others(attention, experts, cut):
    instance = setting_of("default", attention=attention, experts=experts).instance
    assert cut == (instance.D, instance.T, instance.E)
    assert setting_of("asap", attention=attention, experts=experts).instance.devices == cut[2]


def test_devices_that_t_does_not_divide_are_refused():
    with pytest.raises(InputError, match="10 devices cannot be cut into groups of T = 4"):
        setting_of("default", attention=(1, 4), experts=6)


def test_every_colocated_rank_shows_its_groups_attention():
    run = simulate(workload.poisson(rps=8, requests=5), "default", attention=(1, 2), experts=2, spans_s=(0.0, 60.0))
    attention = run.spans["kind"] == "attention"
    times = {
        device: run.spans["start_s"][attention & (run.spans["device"] == device)].tolist()
        for device in ("colocated 0.0", "colocated 0.1", "colocated 1.0", "colocated 1.1")
    }
    assert times["colocated 0.0"] == times["colocated 0.1"] != []
    assert set(run.spans["device"][attention]) == set(times)
