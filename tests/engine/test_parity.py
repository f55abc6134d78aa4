"""The engine against stock transformers, over shapes of the instance, systems and precisions (design.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from asaplab import deploy
from asaplab.models import resolve
from asaplab.workload import prompt
from tests.engine.runs import check, logits, workload
from tests.models import oracle

SHAPES = [(1, 1, 1), (2, 1, 1), (1, 2, 3), (3, 1, 2), (2, 2, 4)]
FAMILIES = ["tiny-deepseek-v3", "tiny-qwen3-moe"]
BARS = {"float32": 1e-4, "float64": 1e-10}
LENGTHS = [5, 33, 64, 1, 90, 17]


@dataclass
class Truth:
    """What transformers says of one prompt: logits of the last position, keys and values of each layer."""

    logits: torch.Tensor
    kv: list[tuple[torch.Tensor, torch.Tensor]]


@pytest.fixture(scope="module")
def truths():
    """transformers' answers, once for each family and precision."""
    answers: dict[tuple[str, str], list[Truth]] = {}

    def ask(family: str, dtype: str) -> list[Truth]:
        if (family, dtype) not in answers:
            work = workload(LENGTHS)
            model = oracle.load(resolve(family), getattr(torch, dtype))
            ids = [torch.from_numpy(prompt(work, i, model.config.vocab_size)) for i in range(len(work))]
            answers[family, dtype] = [Truth(oracle.logits(model, i), oracle.keys_and_values(model, i)) for i in ids]
        return answers[family, dtype]

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(BARS))
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}+{s[2]}")
@pytest.mark.parametrize("family", FAMILIES)
def test_asap_equals_transformers(truths, family, shape, dtype):
    D, T, E = shape
    work = workload(LENGTHS)
    with deploy(family, attention=(D, T), experts=E, mode="shared", dtype=dtype, max_batch_tokens=256) as instance:
        run = instance.prefill(work, keep_logits=True, keep_kv=True)
    check(run, work)
    for i, truth in enumerate(truths(family, dtype)):
        _close(run.logits[i], truth.logits, BARS[dtype])
        assert run.requests["first_token"][i] == int(truth.logits.argmax())
        for layer, (K_hsd, V_hsd) in enumerate(run.kv[i]):
            _close(K_hsd, truth.kv[layer][0], BARS[dtype])
            _close(V_hsd, truth.kv[layer][1], BARS[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_default_equals_transformers(truths, family):
    work = workload(LENGTHS)
    with deploy(family, attention=(2, 1), experts=2, system="default", mode="shared", max_batch_tokens=256) as instance:
        run = instance.prefill(work, keep_logits=True)
    check(run, work)
    for i, truth in enumerate(truths(family, "float32")):
        _close(run.logits[i], truth.logits, BARS["float32"])
        assert run.requests["first_token"][i] == int(truth.logits.argmax())


def _close(found, truth, bar):
    truth = np.asarray(truth, np.float64)
    assert np.abs(np.asarray(found, np.float64) - truth).max() / np.abs(truth).max() <= bar


@pytest.mark.slow
def test_bits_do_not_depend_on_batching_order_interleaving_or_experts():
    """torch.equal logits at fixed T: alone or together, in any order, one or two in flight, any E, either system."""
    import dataclasses

    from asaplab.scheduler import named

    asap = named("asap")
    small = dataclasses.replace(asap, batching=dataclasses.replace(asap.batching, threshold_tokens=64))
    single = dataclasses.replace(small, pipeline=dataclasses.replace(small.pipeline, in_flight=1))
    fifo = dataclasses.replace(named("asap-one-slot"), batching=small.batching)
    plans = [
        ((1, 1), 1, asap),
        ((2, 1), 3, small),
        ((3, 1), 2, single),
        ((2, 1), 2, fifo),
        ((2, 1), 2, named("default")),
        ((2, 1), 2, dataclasses.replace(named("asap-p2p"), batching=small.batching)),
    ]
    answers = []
    for attention, experts, system in plans:
        with deploy(
            "tiny-deepseek-v3", attention=attention, experts=experts, system=system, mode="shared", max_batch_tokens=256
        ) as instance:
            for gap_s in (0.0, 0.01):
                run = instance.prefill(workload(LENGTHS, gap_s=gap_s), keep_logits=True)
                answers.append(logits(run))
    for other in answers[1:]:
        for mine, truth in zip(other, answers[0]):
            assert np.array_equal(mine, truth)


@pytest.mark.slow
def test_bits_at_two_ranks():
    answers = []
    for experts, gap_s in ((1, 0.0), (3, 0.01)):
        with deploy(
            "tiny-qwen3-moe", attention=(1, 2), experts=experts, mode="shared", max_batch_tokens=256
        ) as instance:
            answers.append(logits(instance.prefill(workload(LENGTHS, gap_s=gap_s), keep_logits=True)))
    assert all(np.array_equal(a, b) for a, b in zip(*answers))
