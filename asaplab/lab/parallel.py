"""Independent simulations side by side: one Dask task each, in processes of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def side_by_side(work: Callable[[A], R], items: Sequence[A], *, workers: int | None = None, what: str = "") -> list[R]:
    """``[work(item) for item in items]`` on that many worker processes (default: the cores), with a progress bar.

    With one worker everything stays in this process. ``work`` and the items must be picklable. The bar shows on
    standard error of a terminal only.
    """
    from tqdm import tqdm

    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bar = tqdm(total=len(items), desc=what, disable=not sys.stderr.isatty(), leave=False)
    with bar:
        if min(workers, len(items)) <= 1:
            results = []
            for item in items:
                results.append(work(item))
                bar.update()
            return results
        import dask
        from dask.callbacks import Callback

        def done(*_: object) -> None:
            bar.update()

        tasks = [dask.delayed(work, pure=False)(item) for item in items]
        with Callback(posttask=done):
            return list(dask.compute(*tasks, scheduler="processes", num_workers=min(workers, len(items))))
