"""Prefix-cache hits: prompt tokens whose keys and values are already there (hash_ids of public traces)."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from asaplab.core import Workload
from asaplab.errors import require


def cached_tokens(workload: Workload, capacity_tokens: float) -> np.ndarray:
    """Tokens of each prompt that hit a least-recently-used cache of that many tokens, in order of arrival.

    A prompt's leading blocks hit as long as each was seen before and is still held; its last token is always computed.

    Raises:
        InputError: the workload has no hash_ids.
    """
    require(workload.hash_ids is not None, f"workload {workload.name!r} has no hash_ids; leave the prefix cache out")
    assert workload.hash_ids is not None
    block = workload.block_tokens
    places = int(capacity_tokens // block)
    held: OrderedDict[int, None] = OrderedDict()
    hits = np.zeros(len(workload), np.int64)
    for i, blocks in enumerate(workload.hash_ids):
        leading = 0
        for identity in blocks:
            if identity not in held:
                break
            leading += 1
        hits[i] = min(int(leading * block), int(workload.tokens[i]) - 1)
        for identity in blocks:
            held[identity] = None
            held.move_to_end(identity)
        while len(held) > places:
            held.popitem(last=False)
    return hits
