"""The tables that notebooks, reports and terminals show: rows made from runs, as HTML or as text."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from asaplab.core import Run
from asaplab.observe import metrics


def summary(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """One row a run: what was served, how fast, and how busy each role was."""
    rows = []
    for name, run in runs.items():
        m = metrics(run)
        rows.append(
            {
                "system": name,
                "D": run.instance.D,
                "T": run.instance.T,
                "E": run.instance.E,
                "completed": f"{m['completed']} of {m['requests']}",
                "mean TTFT (s)": m["mean_ttft_s"],
                "p50 (s)": m["p50_ttft_s"],
                "p99 (s)": m["p99_ttft_s"],
                "tokens/s": m["tokens_per_s"],
                "busy": ", ".join(f"{role} {100 * share:.0f}%" for role, share in m["utilization"].items()),
                "mode": m["mode"],
            }
        )
    return rows


_CAPTION = "white-space: nowrap; text-align: left"  # a narrow table would break it into many lines


def table_html(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """Rows as an HTML table; every text is escaped, numbers keep three figures."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{html.escape(str(column))}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text(row.get(column)))}</td>" for column in columns) + "</tr>"
        for row in rows
    )
    title = f'<caption style="{_CAPTION}">{html.escape(caption)}</caption>' if caption else ""
    return f'<table class="asap">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as aligned columns for a terminal."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[str(column) for column in columns]] + [[text(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)


def text(value: Any) -> str:
    """A value as a cell shows it: three figures for numbers, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    if isinstance(value, list | tuple):
        return ", ".join(text(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text(item)}" for name, item in value.items())
    return str(value)
