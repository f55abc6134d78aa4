"""The ledger as the page docs/claims.md."""

from __future__ import annotations

from typing import Any

_HEAD = """# The paper's claims beside ours

Made by `asaplab claims --markdown`; do not edit. Predictions are simulated with the profile `cloudmatrix384`, which
holds the rows marked input, public hardware data and listed assumptions, and is never fitted to an answer. Intervals
are 95% over {seeds} seeds. Shares deviate in points, other numbers relative to the published one.
"""


def plain(value: Any) -> str:
    """A cell: numbers short, intervals as ranges, laws as holds or fails."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "holds" if value else "fails"
    if isinstance(value, list | tuple):
        return " to ".join(plain(v) for v in value)
    return value if isinstance(value, str) else f"{value:.3g}"


def page(ledger: dict[str, Any]) -> str:
    """Markdown: what the headline rests on, the table, and a note for each row."""
    rows = {row["id"]: row for row in ledger["claims"]}
    lines = [_HEAD.format(seeds=ledger["seeds"]), "## What the headline rests on\n", headline(rows), ""]
    lines += ["## The ledger\n", "| statement | section | published | predicted | 95% | deviation | basis |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in ledger["claims"]:
        cells = [row["id"], row["section"], _published(row), plain(row["predicted"]), plain(row["ci95"])]
        lines.append("| " + " | ".join([*cells, _deviation(row), row["basis"] or ""]) + " |")
    lines += ["", "## Notes\n"]
    lines += [f"- **{row['id']}**: {row['note']}." for row in ledger["claims"]]
    return "\n".join(lines)


def headline(rows: dict[str, dict[str, Any]]) -> str:
    """How far asap's gain depends on its baseline, in words around the numbers of the ledger."""
    asap, default, chunked, better, remains = (
        plain(rows[name]["predicted"])
        for name in ("slo-asap", "slo-default", "slo-chunked", "q-better-sync", "q-settling-ablation")
    )
    over_default, over_chunked = (rows[name]["predicted"] for name in ("headline-default", "headline-chunked"))
    return (
        f"The paper's gain is a ratio, and names its baseline: 194% over Default, 90% over ChunkedPrefill. Here asap "
        f"keeps the SLO up to {asap} requests/s, Default up to {default} and ChunkedPrefill up to {chunked}: "
        f"{over_default:.0%} and {over_chunked:.0%}. A synchronous system with filled chunks of 16k, dealt out by "
        f"cost, reaches {better}. With asap's scheduling over synchronous sends {remains} remain. The published 20 "
        f"requests/s lie above what MoE devices can do under the published inflection and HBM bandwidth "
        f"({rows['slo-asap']['note'].split('; ')[1]}), and the published Default lies below ours: both ends of the "
        f"ratio rest on what the paper leaves unstated."
    )


def _published(row: dict[str, Any]) -> str:
    value = plain(row["published"])
    if not value:
        return ""
    sense = {"about": "", "at-most": "at most ", "up-to": "up to ", "at-least": "at least "}[row["sense"]]
    return f"{sense}{value} {row['unit']}"


def _deviation(row: dict[str, Any]) -> str:
    if row["deviation"] is None:
        return ""
    return f"{row['deviation'] * 100:+.0f} {'points' if row['unit'] == 'share' else '%'}"
