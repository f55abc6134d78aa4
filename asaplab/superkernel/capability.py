"""Which CPU kernels this machine can run, and the cap a user may put on that."""

from __future__ import annotations

import os
from types import ModuleType

from asaplab.errors import InputError

VARIABLE = "ASAPLAB_KERNEL"
ABI = 2  # of the native kernels this package was written for
# From the slowest to the fastest. "wide" is avx512bf16's text with vectors the compiler splits: it runs everywhere
# and is taken only by name, to test on a machine without AVX512.
ASCENDING = ("plain", "avx2", "avx512", "avx512bf16", "amx")
BY_NAME_ONLY = ("wide",)


def _load() -> ModuleType | None:
    """The native kernels, or None where asaplab was installed without a compiler: then the plain kernel serves."""
    try:
        from asaplab.superkernel import _kernels
    except ImportError:
        return None
    if _kernels.ABI != ABI:
        raise ImportError(
            f"the native super kernels have ABI {_kernels.ABI} but the package needs {ABI}; install asaplab again"
        )
    return _kernels


native = _load()


def runs_here(kernel: str) -> bool:
    """Whether the machine, and the installation, can run this CPU kernel."""
    return kernel == "plain" or (native is not None and native.has(kernel))


def cpu_capability() -> str:
    """The fastest CPU kernel this process may use: one of ``ASCENDING``.

    The environment variable ASAPLAB_KERNEL caps it, or names "wide", the widest kernel in portable form.

    Raises:
        InputError: ASAPLAB_KERNEL names no kernel.
    """
    cap = os.environ.get(VARIABLE, "").strip().lower()
    if cap in BY_NAME_ONLY and runs_here(cap):
        return cap
    if cap and cap not in ASCENDING + BY_NAME_ONLY:
        raise InputError(f"{VARIABLE} is {cap!r}; unset it or choose one of {', '.join(ASCENDING + BY_NAME_ONLY)}")
    allowed = ASCENDING[: ASCENDING.index(cap) + 1] if cap in ASCENDING else ASCENDING
    return next(kernel for kernel in reversed(allowed) if runs_here(kernel))
