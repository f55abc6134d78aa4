"""Packing: no weights twice, layers in any order, the kernel chosen by machine and variable."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping

import pytest
import torch

from asaplab import superkernel
from asaplab.errors import InputError
from asaplab.superkernel import capability
from tests.superkernel.cases import COMBINATIONS, EXPERTS, KERNELS, LAYERS, H, I, Layers, offsets_of, rows, weights

every_kernel = pytest.mark.parametrize(("kernel", "dtype"), COMBINATIONS, ids=str)


class Recorded(Mapping[int, tuple[torch.Tensor, torch.Tensor]]):
    """Makes each layer on access, and remembers which tensors it handed out."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self.handed: list[weakref.ref[torch.Tensor]] = []
        self.most_alive = 0

    def __getitem__(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        pair = tuple(w.clone() for w in self.layers[layer])
        self.handed += [weakref.ref(w) for w in pair]
        self.most_alive = max(self.most_alive, self.alive())
        return pair[0], pair[1]

    def alive(self) -> int:
        return sum(ref() is not None for ref in self.handed)

    def __iter__(self) -> Iterator[int]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)


@every_kernel
def test_weights_are_held_once(kernel: str, dtype: torch.dtype) -> None:
    """Claim super-kernel-memory: the kernel for all layers needs no more weight memory than the layers' own."""
    given = Recorded(weights(dtype))
    table = superkernel.pack(given, backend=kernel)
    own = len(LAYERS) * EXPERTS * 3 * H * I * dtype.itemsize
    assert table.nbytes == own
    assert sum(w.untyped_storage().nbytes() for pair in table.weights.values() for w in pair) == own
    if kernel == "plain":  # keeps the tensors themselves
        assert [w.data_ptr() for pair in table.weights.values() for w in pair] == [w().data_ptr() for w in given.handed]
    else:  # keeps a reordered copy: the originals go, one layer after the other
        assert given.alive() == 0
        assert given.most_alive == 2


@every_kernel
def test_layers_run_in_any_order(kernel: str, dtype: torch.dtype) -> None:
    """Claim super-kernel-memory: layers of different batches run out of order through one layer tensor."""
    pairs = weights(dtype)
    table = superkernel.pack(pairs, backend=kernel)
    assert table.layers == LAYERS
    x, offsets, layer = rows(7, dtype), offsets_of([3, 0, 3, 1]), torch.zeros(1, dtype=torch.int64)
    alone = {}
    for number in LAYERS:
        own = superkernel.pack({number: pairs[number]}, backend=kernel)
        alone[number] = superkernel.grouped_mlp(x, offsets, torch.tensor([number]), own)
    assert not torch.equal(alone[1], alone[2])
    for number in (5, 1, 2, 2, 5, 1):
        layer.fill_(number)
        assert torch.equal(superkernel.grouped_mlp(x, offsets, layer, table), alone[number])


def test_the_addresses_are_those_of_the_weights() -> None:
    table = superkernel.pack(weights(torch.float32), backend="plain")
    assert table.addresses_Le2.shape == (max(LAYERS) + 1, EXPERTS, 2)
    assert table.addresses_Le2[[0, 3, 4]].eq(0).all()
    gate_up, down = table.weights[2]
    assert table.addresses_Le2[2, 3].tolist() == [gate_up[3].data_ptr(), down[3].data_ptr()]


def test_weights_that_do_not_fit_are_refused() -> None:
    pairs = weights(torch.float32)
    gate_up, down = pairs[1]
    for wrong, match in (
        ({}, "no layers"),
        ({-1: (gate_up, down)}, "layer -1"),
        ({1: (gate_up[0], down)}, "dimensions"),
        ({1: (gate_up[:, 1:], down)}, "must be"),
        ({1: (gate_up, down.transpose(1, 2))}, "must be"),
        ({1: (gate_up.half(), down.half())}, "float16"),
        ({1: (gate_up, down.double())}, "dtypes"),
        ({1: (gate_up, down), 2: (gate_up[1:], down[1:])}, "layer 2"),
    ):
        with pytest.raises(InputError, match=match):
            superkernel.pack(wrong)
    with pytest.raises(InputError, match="'fast'"):
        superkernel.pack(pairs, backend="fast")
    for kernel in KERNELS:
        if kernel != "plain":
            with pytest.raises(InputError, match="float64"):
                superkernel.pack(weights(torch.float64), backend=kernel)


def test_the_variable_caps_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for cap in capability.ASCENDING:
        monkeypatch.setenv(capability.VARIABLE, cap)
        chosen = superkernel.cpu_capability()
        assert capability.runs_here(chosen)
        assert capability.ASCENDING.index(chosen) <= capability.ASCENDING.index(cap)
        assert superkernel.pack(weights(torch.float32)).backend == chosen
    monkeypatch.setenv(capability.VARIABLE, "sse9")
    with pytest.raises(InputError, match="'sse9'"):
        superkernel.cpu_capability()
    monkeypatch.delenv(capability.VARIABLE)
    assert superkernel.cpu_capability() == [kernel for kernel in KERNELS if kernel in capability.ASCENDING][-1]


def test_without_native_kernels_the_plain_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "native", None)
    monkeypatch.delenv(capability.VARIABLE, raising=False)
    assert superkernel.cpu_capability() == "plain"
    assert superkernel.pack(weights(torch.float32)).backend == "plain"
    with pytest.raises(InputError, match="does not run on this machine or installation"):
        superkernel.pack(weights(torch.float32), backend="avx2")
