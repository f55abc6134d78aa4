"""The profiles by name."""

from __future__ import annotations

from functools import cache

from asaplab.errors import InputError
from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.gpus import gpu
from asaplab.profiles.profile import Profile

NAMES = ("cloudmatrix384", "h200", "h100", "b200")


@cache
def profile_of(name: str) -> Profile:
    """The profile of that name.

    Raises:
        InputError: no profile has the name.
    """
    if name not in NAMES:
        raise InputError(f"there is no profile {name!r}; the profiles are {', '.join(NAMES)}")
    return cloudmatrix384() if name == "cloudmatrix384" else gpu(name)
