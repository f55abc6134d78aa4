"""The fork server that devices come from: one process that has torch and the device loops loaded.

A device forked from it starts in a tenth of a second and shares torch's pages with the others. Loading takes seconds,
so the server is started before the parent imports torch for itself; both then load at the same time. It holds no
work, and ends with the parent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import types
from collections.abc import Iterator
from multiprocessing import forkserver

PRELOADED = (
    "numpy",
    "torch",
    "distributed",
    "distributed.nanny",
    "distributed.worker",
    "asaplab.engine.plugin",
    "asaplab.engine.attention_device",
    "asaplab.engine.moe_device",
    "asaplab.engine.colocated_device",
)


def start_fork_server() -> None:
    """Start the fork server unless it runs already; what it preloads is fixed by the first call."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    with main_left_alone():
        forkserver.ensure_running()


def in_child() -> bool:
    """Whether this process was started by multiprocessing, also while it is still importing its main module."""
    starting = getattr(multiprocessing.current_process(), "_inheriting", False)
    return starting or multiprocessing.parent_process() is not None


@contextlib.contextmanager
def main_left_alone() -> Iterator[None]:
    """Processes started in here do not import the user's main module again.

    Devices need nothing from it, so a script works without the ``if __name__ == "__main__"`` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
