"""The compiled kernel against itself as plain Python, and what must hold in every run."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import TTFT_PARTS, Instance
from asaplab.profiles.shapes import MODELS
from asaplab.scheduler import NAMED, named
from asaplab.twin import Simulation, layout, power_law_shares, setting_of
from tests.twin.settings import workload

KINDS = {name: k for k, name in enumerate(TTFT_PARTS)}


def _logs(**environment):
    command = [sys.executable, "-m", "tests.twin.event_log", *sorted(NAMED)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=True, env=os.environ | environment
    )
    return json.loads(done.stdout)


def test_numba_and_python_give_the_identical_event_log():
    compiled, plain = _logs(), _logs(NUMBA_DISABLE_JIT="1")
    for name in NAMED:
        assert len(compiled[name]["lines"]) > 300
        assert compiled[name] == plain[name], name


ASYNCHRONOUS = [name for name in sorted(NAMED) if not named(name).pipeline.barrier]
traffic = st.lists(
    st.tuples(st.floats(0, 0.2), st.sampled_from([1, 40, 700, 2048, 5000, 17000, 32768])), min_size=1, max_size=30
)


def _play(name, requests, D, E, skew):
    gaps, tokens = zip(*requests)
    system = named(name)
    colocated = system.placement.kind == "colocated"
    instance = Instance(D=D, T=2, E=2 * D if colocated else E)
    setting = setting_of(
        system,
        model=replace(MODELS["deepseek-v3"], L=4, dense=1),
        instance=instance,
        shares_LE=power_law_shares(instance.E, skew, layers=4),
    )
    simulation = Simulation(setting, workload(np.cumsum(gaps), np.array(tokens)), log_lines=100_000)
    simulation.play()
    return simulation


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(NAMED)),
    requests=traffic,
    D=st.integers(1, 4),
    E=st.integers(1, 6),
    skew=st.sampled_from([0.0, 1.0]),
)
def test_every_request_ends_and_its_parts_sum_to_ttft(name, requests, D, E, skew):
    columns = _play(name, requests, D, E, skew).requests()
    parts = np.stack([columns[part] for part in TTFT_PARTS])
    assert np.isfinite(columns["ttft_s"]).all()
    assert parts.min() >= 0
    np.testing.assert_allclose(parts.sum(axis=0), columns["ttft_s"], rtol=1e-9, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(ASYNCHRONOUS),
    requests=traffic,
    D=st.integers(1, 4),
    E=st.integers(1, 6),
    skew=st.sampled_from([0.0, 1.0]),
)
def test_devices_do_one_thing_at_a_time_and_conserve_work(name, requests, D, E, skew):
    simulation = _play(name, requests, D, E, skew)
    setting, log = simulation.setting, simulation.log[: int(simulation.count[layout.LOGGED])]
    system, model = setting.system, setting.model
    attention = log[log[:, layout.KIND] == KINDS["attention"]]
    moe = log[log[:, layout.KIND] == KINDS["moe"]]
    batches = np.unique(attention[:, layout.LOG_BATCH])
    assert len(attention) == len(batches) * model.L
    assert len(moe) == len(batches) * (model.L - model.dense) * setting.instance.E
    # work: every batch costs on each device what the profile says, whatever the order
    total = sum(tokens for _, tokens in requests)
    rows = total * model.K * (model.L - model.dense)
    assert moe[:, layout.LOG_TOKENS].sum() == pytest.approx(rows)
    took = moe[:, layout.END_S] - moe[:, layout.START_S]
    assert took.sum() == pytest.approx(simulation.count[layout.MOE_BUSY])
    for lines, device in ((attention, layout.GROUP), (moe, layout.DEVICE)):
        for d in np.unique(lines[:, device]):
            mine = lines[lines[:, device] == d]
            mine = mine[np.argsort(mine[:, layout.START_S], kind="stable")]
            assert np.all(mine[1:, layout.START_S] >= mine[:-1, layout.END_S] - 1e-12)
    for g in range(D):
        spans = [
            (mine[:, layout.START_S].min(), mine[:, layout.END_S].max())
            for b in batches
            if len(mine := attention[(attention[:, layout.LOG_BATCH] == b) & (attention[:, layout.GROUP] == g)])
        ]
        at_once = max((sum(a <= s < e for a, e in spans) for s, _ in spans), default=0)
        assert at_once <= system.pipeline.in_flight


@settings(max_examples=30, deadline=None)
@given(requests=traffic, E=st.integers(1, 6), skew=st.sampled_from([0.0, 1.0]))
def test_moe_devices_serve_regions_in_the_order_of_completion(requests, E, skew):
    simulation = _play("asap", requests, 4, E, skew)
    log = simulation.log[: int(simulation.count[layout.LOGGED])]
    sent = log[log[:, layout.KIND] == KINDS["dispatch"]]
    complete = {(line[layout.LOG_BATCH], line[layout.LOG_LAYER]): line[layout.END_S] for line in sent}
    moe = log[log[:, layout.KIND] == KINDS["moe"]]
    for e in range(E):
        mine = moe[moe[:, layout.DEVICE] == e]
        mine = mine[np.argsort(mine[:, layout.START_S], kind="stable")]
        order = [complete[(line[layout.LOG_BATCH], line[layout.LOG_LAYER])] for line in mine]
        assert order == sorted(order)
        assert all(line[layout.START_S] >= at - 1e-12 for line, at in zip(mine, order))


def test_a_slower_link_or_processor_never_helps():
    """Each cost raised on its own lengthens the mean TTFT of a synchronous system, whose schedule cannot adapt."""
    from tests.twin.settings import FREE, setting, stage

    base = replace(FREE, stage=stage((1e-4, 1e-6, 1e-10), (1e-4, 1e-7)), host_s=1e-3)
    w = workload(np.arange(40) * 0.01, np.linspace(100, 20000, 40).astype(int))

    def mean(costs):
        simulation = Simulation(setting(named("default"), costs, D=4, E=4, layers=3, K=8), w)
        simulation.play()
        return simulation.ttft_s().mean()

    for name in ("tp_token_s", "dispatch_token_s", "combine_token_s", "sum_token_s", "collective_s", "host_s"):
        assert mean(replace(base, **{name: 1e-5})) > mean(replace(base, **{name: 0.0})), name
