"""The Triton kernel on a CUDA device, in a graph that is captured once and replayed for any layer and batch."""

from __future__ import annotations

import pytest
import torch

from asaplab import superkernel
from tests.superkernel.cases import EXPERTS, LAYERS, H, offsets_of, oracle, rows, weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_one_graph_serves_all_layers_and_batches(dtype: torch.dtype) -> None:
    pairs = weights(dtype)
    table = superkernel.pack({layer: (g.cuda(), d.cuda()) for layer, (g, d) in pairs.items()})
    assert table.backend == "triton"
    most = 200
    x, out = torch.zeros(most, H, dtype=dtype, device="cuda"), torch.zeros(most, H, dtype=dtype, device="cuda")
    offsets, layer = (
        torch.zeros(EXPERTS + 1, dtype=torch.int64, device="cuda"),
        torch.tensor([LAYERS[0]], device="cuda"),
    )
    superkernel.grouped_mlp(x, offsets, layer, table, out)  # compile before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        superkernel.grouped_mlp(x, offsets, layer, table, out)
    for chosen, counts in ((5, [100, 0, 7, 93]), (1, [1, 0, 0, 2]), (2, [0, 64, 65, 1])):
        m = sum(counts)
        given = rows(m, dtype)
        x[:m], layer[0] = given.cuda(), chosen
        offsets.copy_(offsets_of(counts))
        graph.replay()
        expected = oracle(given, offsets_of(counts).tolist(), pairs[chosen])
        got = out[:m].cpu().double()
        assert (got - expected).abs().max() <= TOLERANCE[dtype] * expected.abs().max()
