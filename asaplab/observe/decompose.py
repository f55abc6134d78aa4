"""TTFT in parts by prompt length: Figure 15."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from asaplab.core import TTFT_PARTS, Run
from asaplab.errors import InputError

FIGURE_15_BINS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # upper ends, tokens

# The paper's three parts of a TTFT (section 5.3) in ours. Queueing is all waiting for a place to run.
PAPER_PARTS: Mapping[str, tuple[str, ...]] = {
    "kernel": ("attention", "tp", "dispatch", "moe", "combine", "host"),
    "queueing": ("batching_wait", "attention_queue", "moe_queue"),
    "synchronization": ("barrier_wait",),
}


def decompose(run: Run, bins: Sequence[int] = FIGURE_15_BINS) -> dict[str, np.ndarray]:
    """Mean TTFT and its parts for each range of prompt lengths, as columns.

    ``bins`` are upper ends in tokens, ascending; range k holds ``bins[k-1] < tokens <= bins[k]``, and prompts beyond
    the last end form a range of their own. Columns: ``above``, ``up_to`` (tokens; inf for the last), ``requests``,
    ``ttft_s``, one for each of ``TTFT_PARTS`` and one for each of ``PAPER_PARTS`` (s). Empty ranges are left out.

    Raises:
        InputError: the ends are not ascending.
    """
    ends = np.asarray(bins, np.float64)
    if ends.ndim != 1 or len(ends) == 0 or np.any(np.diff(ends) <= 0):
        raise InputError(f"bins are {list(bins)}; give one or more upper ends in ascending order")
    done = np.isfinite(run.requests["ttft_s"])
    bin_of = np.searchsorted(ends, run.requests["tokens"][done], side="left")
    count = np.bincount(bin_of, minlength=len(ends) + 1)
    kept = count > 0

    def mean(column: np.ndarray) -> np.ndarray:
        return np.bincount(bin_of, column[done], minlength=len(ends) + 1)[kept] / count[kept]

    zero = np.zeros(len(done))
    parts = {part: mean(run.requests.get(part, zero)) for part in TTFT_PARTS}
    return {
        "above": np.concatenate([[0.0], ends])[kept],
        "up_to": np.concatenate([ends, [np.inf]])[kept],
        "requests": count[kept],
        "ttft_s": mean(run.requests["ttft_s"]),
        **parts,
        **{name: np.sum([parts[part] for part in ours], axis=0) for name, ours in PAPER_PARTS.items()},
    }
