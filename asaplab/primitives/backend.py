"""Which core moves rows and flags: the native one, or the numpy reference where there is none.

``ASAPLAB_PRIMITIVES=numpy`` or ``native`` forces one. All processes of an instance must use the same.
"""

from __future__ import annotations

import importlib
import os
import platform
from typing import Any

from asaplab.errors import InputError

VARIABLE = "ASAPLAB_PRIMITIVES"
ABI = 2  # of the native core this package was written for
SPIN = 2000  # looks at a bell before sleeping, about 20 us


def _native() -> Any | None:
    try:
        _core: Any = importlib.import_module("asaplab.primitives._core")
    except ImportError:
        return None
    if _core.ABI != ABI:
        raise ImportError(
            f"the native primitives have ABI {_core.ABI} but the package needs {ABI}; install asaplab again"
        )
    return _core


def choose(asked: str | None) -> Any:
    """The core of that name; without a name the fastest one here.

    Raises:
        InputError: there is no such core, it was not built, or numpy's plain loads are not ordered on this machine.
    """
    if asked not in (None, "", "native", "numpy"):
        raise InputError(f"{VARIABLE} is {asked!r}; choose native or numpy")
    native = None if asked == "numpy" else _native()
    if native is not None:
        return native
    if asked == "native":
        raise InputError(f"{VARIABLE} is native but the native core was not built; install asaplab with a compiler")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise InputError(
            f"the numpy primitives rely on the memory order of x86, not of {platform.machine()}; "
            "install asaplab with a compiler"
        )
    from asaplab.primitives import reference

    return reference


core = choose(os.environ.get(VARIABLE))


def spins(devices: int) -> int:
    """How long a wait may spin before it sleeps: not at all when the devices outnumber the cores."""
    return SPIN if devices <= len(os.sched_getaffinity(0)) else 0
