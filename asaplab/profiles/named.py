"""The profiles by name."""

from __future__ import annotations

from functools import cache

from asaplab.errors import InputError
from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.fitted import cloudmatrix384_fitted
from asaplab.profiles.gpus import from_package, gpu
from asaplab.profiles.local import local
from asaplab.profiles.profile import Profile

NAMES = ("cloudmatrix384", "cloudmatrix384-fitted", "h200", "h100", "b200")
PACKAGE = "aiconfigurator-"


def profile_of(name: str) -> Profile:
    """The profile of that name; ``local`` is what ``asaplab calibrate`` measured on this machine.

    ``aiconfigurator-SYSTEM`` reads the rows of one of AIConfigurator's systems (h200_sxm ...) if that is installed.

    Raises:
        InputError: no profile has the name, this machine was not calibrated, or the package is missing.
    """
    if name == "local":
        return local()
    if name.startswith(PACKAGE):
        return from_package(name.removeprefix(PACKAGE))
    if name not in NAMES:
        known = f"{', '.join(NAMES)}, local and {PACKAGE}SYSTEM"
        raise InputError(f"there is no profile {name!r}; the profiles are {known}")
    return _shipped(name)


@cache
def _shipped(name: str) -> Profile:
    if name == "cloudmatrix384-fitted":
        return cloudmatrix384_fitted()
    return cloudmatrix384() if name == "cloudmatrix384" else gpu(name)
