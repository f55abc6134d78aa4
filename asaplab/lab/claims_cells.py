"""Cells of the ledger's tables."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> str:
    """A cell: numbers short, intervals as ranges, laws as holds or fails."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "holds" if value else "fails"
    if isinstance(value, list | tuple):
        return " to ".join(plain(v) for v in value)
    return value if isinstance(value, str) else f"{value:,.0f}" if 1e3 <= value < 1e6 else f"{value:.3g}"


def deviates(value: float | None, unit: str) -> str:
    """A deviation in points for shares, in percent for the rest."""
    return "" if value is None else f"{value * 100:+.0f} {'points' if unit == 'share' else '%'}"
