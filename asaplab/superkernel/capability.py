"""Which kernels this machine can run, and the cap a user may put on that."""

from __future__ import annotations

import os

from asaplab.errors import InputError

VARIABLE = "ASAPLAB_KERNEL"
CHOICES = ("plain",)


def cpu_capability() -> str:
    """The best CPU kernel this process may use, capped by the environment variable ASAPLAB_KERNEL.

    Raises:
        InputError: ASAPLAB_KERNEL names no kernel.
    """
    cap = os.environ.get(VARIABLE, "").strip().lower()
    if cap and cap not in CHOICES:
        raise InputError(f"{VARIABLE} is {cap!r}; it must be one of {', '.join(CHOICES)}, or unset")
    return "plain"
