"""Prompts longer than S are left out before a run, counted, and named once (section 4.2)."""

from __future__ import annotations

from asaplab.errors import InputError


def note(what: str, excluded: int, most: int, *, strict: bool) -> dict[str, str]:
    """``{"excluded_note": sentence}`` for the caller to print once; empty if nothing was left out.

    Raises:
        InputError: something was left out and ``strict`` refuses that.
    """
    if excluded == 0:
        return {}
    prompts = "1 prompt" if excluded == 1 else f"{excluded:,} prompts"
    if strict:
        raise InputError(f"{what} has {prompts} longer than S = {most} tokens; raise S, or drop strict")
    return {"excluded_note": f"{prompts} of {what} longer than S = {most} tokens left out before the run"}
