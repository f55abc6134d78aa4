"""The bench of the primitives on a small scale: every peer moves the same bytes to every receiver."""

import pytest
import torch

from asaplab.lab.bench_primitives import HIDDEN, TOP_K, against_memcpy, cast, measure
from asaplab.lab.peers import PEERS, receivers


@pytest.mark.slow
def test_every_peer_is_measured_and_ratios_are_over_async():
    with receivers(2) as star, cast(star, 4) as ready:
        for busy in (False, True):
            rows = {row["peer"]: row for row in measure(star, ready, busy, 2)}
            assert tuple(rows) == PEERS
            assert rows["async"]["blocked_ratio"] == rows["async"]["delivered_ratio"] == 1
            for row in rows.values():
                assert (row["tokens"], row["receivers"], row["busy"]) == (4, 2, busy)
                assert row["bytes"] == 4 * TOP_K * HIDDEN * 2
                assert row["blocked_us"] > 0
                ratio = row["blocked_us"] / rows["async"]["blocked_us"]
                assert row["blocked_ratio"] == pytest.approx(ratio)
        assert against_memcpy(star, ready, 2) > 0
        assert torch.equal(ready.outgoing, ready.x_nH[torch.cat(ready.gather)])
