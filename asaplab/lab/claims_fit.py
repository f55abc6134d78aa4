"""The part of the ledger's page about the fitted profile: how close any setting comes, and what none can meet."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from asaplab.lab.claims_cells import deviates, plain
from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.fitted import NAME

_SHOWN = 8  # sets of figures on the page
Rows = Mapping[str, Mapping[str, Any]]


def fitted_section(fit: Mapping[str, Any], rows: Rows) -> str:
    """Markdown: the fitted values, the figures with their leave-one-out errors, and joint feasibility."""
    assumed = cloudmatrix384().quantities()
    told = (
        f"The profile `{NAME}` has the {fit['parameters']} free assumptions of `cloudmatrix384` fitted to "
        f"{len(fit['figures'])} published figures: the best of {fit['settings']} simulated settings "
        f"(`{fit['made_by']}`; {fit['objective']}), none of which beats a link, the HBM or a peak. Deviations are "
        f"{fit['rms_assumed']:.0%} root mean square as assumed, {fit['rms']:.0%} fitted, and {fit['rms_left_out']:.0%} "
        f"for each figure when it is left out of the fit. Contention and the handshake are not fitted: no published "
        f"system overlaps communication with attention, and an anchor gives the handshake."
    )
    lines = [
        f"## How close any setting comes (fitted)\n\n{_paragraph(told)}\n",
        "| free assumption | assumed | fitted | bounds |\n|---|---|---|---|",
    ]
    for name, value in fit["values"].items():
        low, high = fit["bounds"][name]
        lines.append(f"| {name} | {assumed[name].value:.3g} | {value:.3g} | {low:.3g} to {high:.3g} |")
    lines.append("\n| figure | published | fitted | deviation | left out |\n|---|---|---|---|---|")
    for name, figure in fit["figures"].items():
        unit = rows[name]["unit"]
        deviations = [deviates(figure[key], unit) for key in ("deviation", "left_out")]
        cells = [name, plain(rows[name]["published"]), plain(figure["predicted"]), *deviations]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _feasibility(fit["feasibility"], list(fit["figures"]))])


def _feasibility(found: Mapping[str, Any], figures: list[str]) -> str:
    """What no setting meets: alone, in pairs, and all together."""
    within, met = found["within"], found["most"]["met"]
    missed = [name for name in figures if name not in met]
    ranges = " and ".join(f"{name} ({low:g} to {high:g})" for name, (low, high) in found["bounds"].items())
    told = (
        f"A search over the same assumptions and what the paper leaves open about the systems, {ranges}, simulated "
        f"{found['settings']} settings that keep the anchors. Met means within {within:.0%} (shares: "
        f"{within * 100:.0f} points). The search shows what it tried, and tried no other anchors."
    )
    lines = [
        f"## What cannot be met together\n\n{_paragraph(told)}\n",
        f"- **Alone out of reach**: {_never(found)}.",
        f"- **Each in reach, but not together**: {_apart(found)}.",
        f"- **Most at once**: {len(met)} of {len(figures)} figures hold at one setting; missed there: "
        f"{', '.join(missed) or 'none'}.",
    ]
    return "\n".join(lines)


def _paragraph(text: str) -> str:
    return fill(text, 118, break_long_words=False, break_on_hyphens=False)


def _never(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} (closest {found['closest'][name]:.0%} off)" for name in found["never"]) or "none"


def _apart(found: Mapping[str, Any]) -> str:
    sets = sorted(found["apart"], key=lambda some: -some["closest"])
    said = ", ".join(f"{' with '.join(some['figures'])} ({some['closest']:.0%})" for some in sets[:_SHOWN])
    more = f", and {len(sets) - _SHOWN} more sets that come closer" if len(sets) > _SHOWN else ""
    return f"{said}{more}; in brackets how far off the worst of them is at best" if sets else "none, by two or by three"
