"""Situations that users of such systems run into; each must simply work."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from asaplab import deploy
from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.scheduler import named
from tests.engine.runs import check, workload


@pytest.fixture(scope="module")
def instance():
    with deploy("tiny-deepseek-v3", attention=(2, 1), experts=2, mode="shared", max_batch_tokens=4096) as live:
        yield live


def test_one_request_on_an_idle_instance_finishes(instance):
    work = workload([7])
    check(instance.prefill(work), work)


def test_a_prompt_of_one_token(instance):
    work = workload([1, 1, 1])
    check(instance.prefill(work), work)


def test_uneven_batch(instance):
    work = workload([3000, 100, 100, 100])
    check(instance.prefill(work), work)


def test_an_empty_workload(instance):
    run = instance.prefill(Workload(arrival_s=np.zeros(0), tokens=np.zeros(0, np.int64)))
    assert len(run.requests["id"]) == 0


def test_a_prompt_beyond_S_is_refused_before_the_run(instance):
    with pytest.raises(InputError, match="4097 tokens is longer than S = 4096"):
        instance.prefill(workload([4097]))


def test_kv_beyond_the_limit_is_refused_before_the_run(instance):
    with pytest.raises(InputError, match="kv_limit_bytes"):
        instance.prefill(workload([100]), keep_kv=True, kv_limit_bytes=1000)


def test_arrivals_are_replayed_against_absolute_times(instance):
    """Arrivals keep the asked rate however long the prompts before them take."""
    work = workload([200] * 20, gap_s=0.05)
    run = instance.prefill(work)
    check(run, work)
    first_token_s = run.requests["arrival_s"] + run.requests["ttft_s"]
    assert first_token_s.max() >= work.arrival_s[-1]
    assert run.requests["batching_wait"].max() < 1.0


def test_utilization_is_reported_for_every_role(instance):
    run = instance.prefill(workload([300] * 8))
    assert set(run.utilization) == {"attention", "moe"}
    assert all(0 < share <= 1 for share in run.utilization.values())


def test_spans_name_every_device_and_stage(instance):
    run = instance.prefill(workload([2100] * 6))
    assert set(run.spans["device"]) == {"attention 0.0", "attention 1.0", "moe 0", "moe 1"}
    assert {"attention", "dispatch", "moe", "combine"} <= set(run.spans["kind"])
    assert (run.spans["end_s"] >= run.spans["start_s"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 1, 1), (3, 1, 2), (1, 1, 3), (1, 2, 5)], ids=str)
def test_asymmetric_shapes(shape):
    D, T, E = shape
    work = workload([40, 3, 200, 1, 77], gap_s=0.01)
    with deploy("tiny-qwen3-moe", attention=(D, T), experts=E, mode="shared", max_batch_tokens=512) as live:
        check(live.prefill(work), work)


@pytest.mark.slow
def test_more_experts_devices_than_a_token_reaches():
    """With E = 16 devices of one expert each, most get no rows of a one-token prompt and must not be waited for."""
    work = workload([1, 2, 1])
    with deploy("tiny-deepseek-v3", attention=(1, 1), experts=16, mode="shared", max_batch_tokens=64) as live:
        check(live.prefill(work), work)


@pytest.mark.slow
def test_default_with_an_idle_group_does_not_deadlock():
    work = workload([50, 60], gap_s=0.3)  # one prompt a step: all other groups have none
    with deploy(
        "tiny-qwen3-moe", attention=(2, 1), experts=2, system="default", mode="shared", max_batch_tokens=512
    ) as live:
        run = live.prefill(work)
        assert live.instance.T == 1
        assert live.instance.D == 4
    check(run, work)
    assert (run.requests["batch"] == [0, 1]).all()


@pytest.mark.slow
def test_overlap_on_attention_devices_too():
    asap = named("asap")
    both = dataclasses.replace(
        asap, pipeline=dataclasses.replace(asap.pipeline, overlap=frozenset({"attention", "moe"}))
    )
    none = dataclasses.replace(asap, pipeline=dataclasses.replace(asap.pipeline, overlap=frozenset()))
    work = workload([300] * 12)
    for system in (both, none):
        with deploy("tiny-qwen3-moe", system=system, mode="shared", max_batch_tokens=4096) as live:
            check(live.prefill(work), work)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [{"moe"}, set()], ids=["overlapped", "in turn"])
def test_one_slot_and_two_batches_in_flight_never_deadlock(overlap):
    """Sends in order would: each MoE device holding the rows that the other one's group waits for."""
    system = named("asap-one-slot")
    batching = dataclasses.replace(system.batching, threshold_tokens=64)
    pipeline = dataclasses.replace(system.pipeline, overlap=frozenset(overlap))
    system = dataclasses.replace(system, batching=batching, pipeline=pipeline)
    work = workload([70] * 80)
    with deploy("tiny-qwen3-moe", system=system, mode="shared", max_batch_tokens=128, timeout_s=20.0) as live:
        check(live.prefill(work), work)


@pytest.mark.slow
def test_paced_mode_waits_for_the_profiles_times():
    """An attention layer takes at least its service time: c0 + c1 tokens + c2 sum(s^2), stretched."""
    work = workload([400] * 6)
    with deploy("tiny-qwen3-moe", attention=(1, 1), experts=1, mode="paced", pace=500.0, max_batch_tokens=4096) as live:
        run = live.prefill(work)
        costs = live.specs[0].costs
    check(run, work)
    assert run.mode == "paced"
    attention = run.spans["kind"] == "attention"
    took_s = (run.spans["end_s"] - run.spans["start_s"])[attention]
    for span_s, tokens in zip(took_s, run.spans["tokens"][attention]):
        assert span_s >= costs.attention_s(tokens, tokens / 400 * 400**2) * 500.0 * 0.999
