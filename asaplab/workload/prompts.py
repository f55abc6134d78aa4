"""Token ids of a workload's prompts: random, reproducible, and equal where the trace says that blocks are equal."""

from __future__ import annotations

import numpy as np

from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.workload.streams import stream


def block_bounds(workload: Workload, blocks: int) -> np.ndarray:
    """Where each of the first ``blocks`` prefix blocks starts, and the last one ends, in tokens (int64, blocks + 1).

    A block may hold a fraction of a token after length scaling; block k spans ``round(k * block_tokens)`` up to
    ``round((k + 1) * block_tokens)``, so equal prefixes of blocks stay equal prefixes of tokens.
    """
    return np.rint(np.arange(blocks + 1) * workload.block_tokens).astype(np.int64)


def prompt(workload: Workload, i: int, vocab: int) -> np.ndarray:
    """The token ids of request i: int64, ``tokens[i]`` of them, each below ``vocab``.

    The same for every call, whatever was asked before. Blocks with equal ``hash_ids`` hold equal ids.

    Raises:
        InputError: there is no such request, the vocabulary is empty, or given token ids lie outside it.
    """
    if not 0 <= i < len(workload):
        raise InputError(f"workload {workload.name!r} has no request {i}; it has {len(workload)}")
    if vocab < 1:
        raise InputError(f"vocab is {vocab}; a vocabulary has at least 1 token")
    if workload.token_ids is not None:
        return _given(workload.token_ids[i], i, vocab)
    tokens = int(workload.tokens[i])
    hashes = workload.hash_ids[i] if workload.hash_ids is not None else ()
    bounds = np.minimum(block_bounds(workload, len(hashes)), tokens)
    ids = np.empty(tokens, np.int64)
    for hash_id, start, end in zip(hashes, bounds[:-1], bounds[1:]):
        if end > start:
            ids[start:end] = stream(workload.seed, "block tokens", hash_id).integers(0, vocab, end - start)
    if bounds[-1] < tokens:
        ids[bounds[-1] :] = stream(workload.seed, "request tokens", i).integers(0, vocab, tokens - bounds[-1])
    return ids


def _given(ids: np.ndarray, i: int, vocab: int) -> np.ndarray:
    ids = np.asarray(ids, np.int64)
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= vocab):
        raise InputError(f"request {i} has a token id outside the model's vocabulary of {vocab}; use its own tokenizer")
    return ids
