"""The profiles by name."""

from __future__ import annotations

from functools import cache

from asaplab.errors import InputError
from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.gpus import gpu
from asaplab.profiles.local import local
from asaplab.profiles.profile import Profile

NAMES = ("cloudmatrix384", "h200", "h100", "b200")


def profile_of(name: str) -> Profile:
    """The profile of that name; ``local`` is what ``asaplab calibrate`` measured on this machine.

    Raises:
        InputError: no profile has the name, or this machine was not calibrated.
    """
    if name == "local":
        return local()
    if name not in NAMES:
        raise InputError(f"there is no profile {name!r}; the profiles are {', '.join(NAMES)} and local")
    return _shipped(name)


@cache
def _shipped(name: str) -> Profile:
    return cloudmatrix384() if name == "cloudmatrix384" else gpu(name)
