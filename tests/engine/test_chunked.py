"""Prompts in chunks across steps, with their KV prefix, give the bits of whole prompts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from asaplab import deploy
from asaplab.scheduler import named
from tests.engine.runs import check, logits, workload

pytestmark = pytest.mark.slow
LENGTHS = [300, 7, 64, 129, 1, 90]


@pytest.fixture(scope="module")
def whole():
    with deploy("tiny-deepseek-v3", system="default", mode="shared", max_batch_tokens=512) as live:
        return logits(live.prefill(workload(LENGTHS), keep_logits=True))


@pytest.mark.parametrize("fill", [False, True], ids=["whole pieces", "filled chunks"])
def test_chunks_give_the_same_bits(whole, fill):
    default = named("default")
    chunked = replace(default, name="chunks", batching=replace(default.batching, chunk_tokens=64, fill_chunks=fill))
    work = workload(LENGTHS)
    with deploy("tiny-deepseek-v3", system=chunked, mode="shared", max_batch_tokens=512) as live:
        run = live.prefill(work, keep_logits=True, keep_kv=True)
    check(run, work)
    for mine, truth in zip(logits(run), whole):
        assert np.array_equal(mine, truth)
    assert [len(run.kv[i][0][0][0]) for i in range(len(LENGTHS))] == LENGTHS  # keys of layer 0, head 0
