"""The event kernel against queueing theory."""

from dataclasses import replace

import numpy as np
import pytest

from asaplab.core import Batching
from asaplab.scheduler import named
from asaplab.twin import Simulation
from tests.twin.settings import ALONE, FREE, setting, stage, workload


def played(setting_, workload_):
    simulation = Simulation(setting_, workload_)
    simulation.play()
    return simulation.requests()


def poisson(n, rate, seed=1):
    """Arrivals whose gaps are the n quantiles of the exponential distribution, shuffled: less noise than a sample."""
    gaps = -np.log1p(-(np.arange(n) + 0.5) / n) / rate
    return np.cumsum(np.random.default_rng(seed).permutation(gaps))


def lindley(arrival_s, service_s):
    """Waiting times of one FIFO server, one request after the other."""
    waits, free = np.empty(len(arrival_s)), 0.0
    for i, (at, service) in enumerate(zip(arrival_s, service_s)):
        waits[i] = max(0.0, free - at)
        free = max(free, at) + service
    return waits


@pytest.mark.parametrize("rho", [0.3, 0.6])
def test_md1_waiting_for_a_group(rho):
    """Requests of equal length at one group: rho / (2 (1 - rho)) services of waiting."""
    w = workload(poisson(100_000, rho), 1000)
    requests = played(setting(ALONE, replace(FREE, stage=stage(attention=(0.0, 1e-3, 0.0)))), w)
    assert requests["batching_wait"].mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.01)
    np.testing.assert_allclose(requests["batching_wait"], lindley(w.arrival_s, np.ones(len(w))), atol=1e-6)


def test_mg1_waiting_for_a_group():
    """Requests of two lengths: Pollaczek-Khinchine."""
    rng, rate = np.random.default_rng(2), 0.6
    tokens = rng.permutation(np.repeat([500, 500, 2000], 80_000))
    requests = played(
        setting(ALONE, replace(FREE, stage=stage(attention=(0.0, 1e-3, 0.0)))), workload(poisson(240_000, rate), tokens)
    )
    second = (0.25 * 2 + 4.0) / 3
    rho = rate * (0.5 * 2 + 2.0) / 3
    assert requests["batching_wait"].mean() == pytest.approx(rate * second / (2 * (1 - rho)), rel=0.02)


def test_md1_waiting_for_a_moe_device():
    """So many groups that all requests reach the MoE device at once: its queue is M/D/1."""
    rho = 0.5
    system = setting(ALONE, replace(FREE, stage=stage(moe=(1.0, 0.0))), D=48)
    requests = played(system, workload(poisson(100_000, rho), 10))
    assert requests["batching_wait"].max() < 1e-9
    assert requests["moe_queue"].mean() == pytest.approx(rho / (2 * (1 - rho)), rel=0.01)


def test_a_pipeline_without_queueing_takes_the_sum_of_its_stages():
    costs = replace(
        FREE,
        stage=stage(attention=(1.0, 0.01, 0.0001), moe=(2.0, 0.0)),
        dense_token_s=0.02,
        tp_fixed_s=0.25,
        tp_token_s=0.0,
        latency_s=0.125,
        dispatch_token_s=0.03,
        combine_token_s=0.05,
        sum_token_s=0.0025,
        host_s=0.5,
    )
    requests = played(setting(ALONE, costs, layers=5, dense=2, E=3), workload([1.0], 100))
    attention = 1.0 + 1.0 + 1.0  # fixed, 100 tokens, 100^2
    expected = 5 * (attention + 0.25) + 2 * 2.0 + 3 * (3.0 + 0.125 + 2.0 + 0.125 + 5.0 + 0.25) + 0.5
    assert requests["ttft_s"][0] == pytest.approx(expected, rel=1e-12)
    assert requests["moe"][0] == pytest.approx(6.0)
    assert requests["dispatch"][0] == pytest.approx(9.375)


def test_a_barrier_waits_for_the_greatest_of_its_groups():
    """One prompt a group and step, lengths uniform on 1..n: steps take the expected greatest of D draws."""
    D, n, steps = 4, 100, 6_000
    system = replace(named("default"), batching=Batching(policy="balanced", budget_tokens=1, max_tokens=32768))
    tokens = np.random.default_rng(3).integers(1, n + 1, D * steps)
    costs = replace(FREE, stage=stage(attention=(0.0, 1.0, 0.0)))
    simulation = Simulation(setting(system, costs, D=D, E=D), workload(np.zeros(D * steps), tokens))
    simulation.play()
    greatest = n - sum((k / n) ** D for k in range(1, n))
    assert simulation.now / steps == pytest.approx(greatest, rel=0.01)
    mean_wait = simulation.requests()["barrier_wait"].mean()
    assert mean_wait == pytest.approx(greatest - (n + 1) / 2, rel=0.01)


def test_ping_pong_takes_its_closed_form():
    """MegaScale-Infer: (Ta + Te + 2 Tc) + Tf (m L - 1) where Tf is the slower stage."""
    m, layers, attention, expert, link = 4, 7, 3.0, 2.0, 0.5
    costs = replace(FREE, stage=stage(attention=(attention, 0.0, 0.0), moe=(expert, 0.0)), latency_s=link)
    simulation = Simulation(setting(named("megascale-infer"), costs, layers=layers), workload([0.0], 400))
    simulation.play()
    closed = attention + expert + 2 * link + max(attention, expert) * (m * layers - 1)
    assert simulation.ttft_s()[0] == pytest.approx(closed, rel=1e-12)
