"""Configuration as plain JSON values and back, so that a saved system equals the one that ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any, get_origin, get_type_hints

import numpy as np

from asaplab.core import System
from asaplab.errors import InputError


def to_plain(value: Any) -> Any:
    """Dataclasses, numpy values, sets and tuples as dicts, numbers and lists that JSON can hold.

    Raises:
        TypeError: a value has no plain form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, PurePath):
        return value.name  # a path of this machine means nothing on another
    raise TypeError(f"{type(value).__name__} has no plain form")


def system_from_dict(plain: Mapping[str, Any]) -> System:
    """The system that ``to_plain`` wrote; fields that are not named keep their defaults.

    Raises:
        InputError: a field is unknown, or the combination is not legal.
    """
    return _dataclass_from(System, plain)


def _dataclass_from(cls: type, plain: Mapping[str, Any]) -> Any:
    hints = get_type_hints(cls)
    values = {}
    for name, value in plain.items():
        if name not in hints:
            raise InputError(f"{cls.__name__.lower()} has no field {name!r}; its fields are {', '.join(hints)}")
        hint = hints[name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            value = _dataclass_from(hint, value)
        elif get_origin(hint) in (frozenset, tuple) and value is not None:
            value = get_origin(hint)(value)
        values[name] = value
    return cls(**values)
