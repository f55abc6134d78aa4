"""``local``: the profile of this machine, as ``asaplab calibrate`` measured it and left it in the user's cache."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asaplab.errors import InputError
from asaplab.profiles.profile import Profile, Quantity
from asaplab.profiles.ranges import Measured


def place() -> Path:
    """The file; XDG_CACHE_HOME moves it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "asaplab" / "local-profile.json"


def write(profile: Profile, path: Path | None = None) -> Path:
    """Keep a profile as JSON: a value, its basis and its source for every number."""
    path = path or place()
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = {name: asdict(quantity) for name, quantity in profile.quantities().items()}
    measured = None if profile.measured is None else asdict(profile.measured)
    path.write_text(json.dumps({"name": profile.name, "measured": measured} | numbers, indent=1))
    return path


def local(path: Path | None = None) -> Profile:
    """The measured profile.

    Raises:
        InputError: this machine was not calibrated, or the file is not a profile.
    """
    path = path or place()
    if not path.is_file():
        raise InputError("profile 'local' does not exist yet; run 'asaplab calibrate' on this machine first")
    try:
        read = json.loads(path.read_text())
        name, measured = read.pop("name"), read.pop("measured")
        ranges = None if measured is None else Measured(**{k: _ends(v) for k, v in measured.items()})
        numbers = {name: Quantity(**value) for name, value in read.items()}
        return Profile(name=name, measured=ranges, **numbers)
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"{path.name} is not a profile that this version reads; run 'asaplab calibrate' again"
        ) from None


def _ends(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value
