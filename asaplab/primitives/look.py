"""What lies in a MoE device's regions right now, without disturbing anybody: for pictures and for people (Figure 7)."""

from __future__ import annotations

from typing import NamedTuple

from asaplab.primitives.combine import MoEPort


class Row(NamedTuple):
    """Row j of a slot of region i: ``state`` is "empty", "full" (its flag is set) or "in use" (received, not freed)."""

    device: str
    region: int
    slot: int
    rank: int
    state: str
    sequence: int  # of the flag: counts the messages of its writer, 0 when clear
    layer: int
    batch: int
    rows: int  # tokens


def rows(port: MoEPort) -> list[Row]:
    """Every row of the device's regions in order. Layer, batch and rows are 0 where nothing lies."""
    flags, found = port._flags(), []
    for i, slot, j in sorted(
        {(i, s, j) for i in range(port.d.D) for s in range(port.d.slots) for j in range(port.d.T)}
    ):
        value = int(flags[i, slot, j])
        words = port._words(i, slot)[j]
        layer, batch, tokens = (int(words[k]) if value else 0 for k in (1, 2, 3))
        state = "empty" if not value else "in use" if value == int(port._taken[i, slot, j]) else "full"
        found.append(Row(port.name, i, slot, j, state, value & 0xFFFFFFFF, layer, batch, tokens))
    return found
