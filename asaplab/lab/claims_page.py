"""The ledger as the page docs/claims.md."""

from __future__ import annotations

from typing import Any

from asaplab.lab.claims_cells import deviates, plain
from asaplab.lab.claims_fit import fitted_section

_HEAD = """# The paper's claims beside ours

Made by `asaplab claims --markdown`; do not edit. Predictions are simulated with the profile `{profile}`, which
{about}. Intervals are 95% over {seeds} seeds. Shares
deviate in points, other numbers relative to the published one.
"""
_ABOUT = {
    False: "holds the rows marked input, public hardware data and listed assumptions, and is never fitted to an answer",
    True: "is fitted to published results: rows marked fitted show how close it comes and predict nothing",
}


def page(ledger: dict[str, Any]) -> str:
    """Markdown: what the headline rests on, the table, and a note for each row."""
    rows = {row["id"]: row for row in ledger["claims"]}
    about = _ABOUT[any(row["fitted"] for row in ledger["claims"])]
    lines = [
        _HEAD.format(seeds=ledger["seeds"], profile=ledger["profile"], about=about),
        "## What the headline rests on\n",
        headline(rows),
        "",
    ]
    lines += ["## The ledger\n", "| statement | section | published | predicted | 95% | deviation | basis |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in ledger["claims"]:
        cells = [row["id"], row["section"], _published(row), plain(row["predicted"]), plain(row["ci95"])]
        basis = f"{row['basis'] or ''}{', fitted' if row['fitted'] else ''}"
        lines.append("| " + " | ".join([*cells, deviates(row["deviation"], row["unit"]), basis]) + " |")
    lines += ["", fitted_section(ledger["fit"], rows), "", "## Notes\n"]
    lines += [f"- **{row['id']}**: {row['note']}." for row in ledger["claims"]]
    return "\n".join(lines)


def headline(rows: dict[str, dict[str, Any]]) -> str:
    """How far asap's gain depends on its baseline, in words around the numbers of the ledger."""
    asap, default, chunked, better, remains, small = (
        rows[name]["predicted"]
        for name in (
            "slo-asap", "slo-default", "slo-chunked", "q-better-sync", "q-settling-ablation", "q-default-budget",
        )
    )  # fmt: skip
    latencies = [abs(row["deviation"]) for name, row in rows.items() if name.startswith("ttft-rps")]
    over_default, over_chunked = (rows[name]["predicted"] for name in ("headline-default", "headline-chunked"))
    return (
        f"The paper's gain is a ratio and names its baseline: 194% over Default, 90% over ChunkedPrefill. Here asap "
        f"keeps the SLO up to {plain(asap)} requests/s, Default up to {plain(default)} and ChunkedPrefill up to "
        f"{plain(chunked)}, a gain of {over_default:.0%} and {over_chunked:.0%}.\n\n"
        f"- **The baseline.** Default's batch budget is not stated. With 32k tokens a DP group and step it reaches "
        f"{plain(default)}, with 8k only {plain(small)}: the same asap then gains {asap / small - 1:.0%}. A "
        f"synchronous system with filled chunks of 16k, dealt out by cost, reaches {plain(better)}; over it asap gains "
        f"{asap / better - 1:.0%}.\n"
        f"- **The top.** The published 20 requests/s exceed what these devices can do whatever the schedule "
        f"({rows['slo-asap']['note'].split('; ')[1]}), unless the MoE inflection lies well beyond the published 2k "
        f"tokens and attention runs faster than half of the int8 peak, which is assumed; Figure 4's ratio then asks "
        f"for scores beyond the bf16 peak.\n"
        f"- **The primitives.** With asap's scheduling over synchronous sends {plain(remains)} requests/s remain.\n"
        f"- **Latency.** At 1 to 8 requests/s the {len(latencies)} predicted latencies deviate by "
        f"{sum(latencies) / len(latencies):.0%} on average and {max(latencies):.0%} at most."
    )


def _published(row: dict[str, Any]) -> str:
    value = plain(row["published"])
    if not value:
        return ""
    sense = {"about": "", "at-most": "at most ", "up-to": "up to ", "at-least": "at least "}[row["sense"]]
    return f"{sense}{value} {row['unit']}"
