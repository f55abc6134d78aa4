"""The three ways a user's work can go wrong, each one sentence long, and how a rule is checked."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints


class AsapError(Exception):
    """Base of every error that the command line prints as one sentence (exit status 2)."""


class InputError(AsapError, ValueError):
    """An input breaks a rule. The message names the input, the rule and the fix."""


class DeviceLost(AsapError, RuntimeError):
    """A device process died during a run. The message names the device."""


class Stalled(AsapError, TimeoutError):
    """A bounded wait ran out. The message says who waited, for whom and how long."""


def require(holds: bool, sentence: str) -> None:
    """Refuse an input with that sentence unless its rule holds.

    Raises:
        InputError: it does not.
    """
    if not holds:
        raise InputError(sentence)


def require_choices(config: Any) -> None:
    """Every ``Literal`` field of a dataclass holds one of its words.

    Raises:
        InputError: one does not.
    """
    cls: Any = type(config)
    for name, choices in _choices(cls).items():
        value = getattr(config, name)
        known = " or ".join(map(repr, choices))
        require(value in choices, f"{cls.__name__.lower()}.{name} is {value!r}; choose {known}")


@cache
def _choices(cls: Any) -> dict[str, tuple[Any, ...]]:
    return {name: get_args(hint) for name, hint in get_type_hints(cls).items() if get_origin(hint) is Literal}
