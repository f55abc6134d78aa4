"""``cloudmatrix384-fitted``: cloudmatrix384 with its free assumptions fitted to the paper's published results.

It shows how close any setting of them comes, and predicts nothing: what it meets, it was fitted to meet. The search
that made the file is ``python -m asaplab.lab.fit``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.profile import Profile, Quantity

NAME = "cloudmatrix384-fitted"


def fit_of() -> dict[str, Any]:
    """What the search found: values, bounds, the figures' deviations, leave-one-out errors and joint feasibility."""
    found: dict[str, Any] = json.loads(files("asaplab.profiles").joinpath(f"{NAME}.json").read_text())
    return found


def fitted(values: dict[str, float]) -> Profile:
    """cloudmatrix384 with these values, each marked fitted; what follows from them says so."""
    profile = cloudmatrix384(**values)
    changed: dict[str, Quantity] = {}
    for name, quantity in profile.quantities().items():
        if name in values:
            source = f"fitted to the paper's results; {cloudmatrix384().quantities()[name].value:g} in cloudmatrix384"
            changed[name] = Quantity(value=quantity.value, basis="fitted", source=source)
        elif name in ("square_efficiency", "moe_efficiency"):
            changed[name] = replace(quantity, source=f"{quantity.source}; follows from fitted values")
    return replace(profile, name=NAME, **changed)  # type: ignore[arg-type]


def cloudmatrix384_fitted() -> Profile:
    """The profile as the stored search found it."""
    return fitted(fit_of()["values"])
