"""Turn saved benchmarks into the tables and the figure of docs/benchmarks.md.

    asaplab bench primitives --out docs/benchmarks      # likewise superkernel, attention, engine, twin
    python docs/benchmarks.py

Every number on that page is in one of the saved files; what limits a figure is written there by hand.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asaplab.lab.tables import text
from asaplab.show.style import GRID, INK, SERIES

HERE = Path(__file__).parent / "benchmarks"
Result = dict[str, Any]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(text(row.get(c)) for c in columns) + " |" for row in rows])


def interval(found: Mapping[str, Any] | None) -> str:
    """A value with its 95% interval."""
    if found is None:
        return ""
    ends = found["ci95"]
    return text(found["value"]) + ("" if ends is None else f" ({text(ends[0])} to {text(ends[1])})")


def loaded(result: Result, load: float) -> bool:
    """Whether other work disturbed a figure: more than one process beyond the cores."""
    return bool(load > result["machine"]["cores"] + 1)


def machine(result: Result) -> str:
    m = result["machine"]
    place = f"{m['processor']}, {m['cores']} cores, {m['memory_gb']:.0f} GB, {m['cpu_capability']}, torch {m['torch']}"
    note = (
        " **The machine was loaded with other work: times are high and ratios noisy.**"
        if loaded(result, m["load"][1])
        else ""
    )
    part = "" if result["complete"] else " **Interrupted: part of the run only.**"
    return f"Measured {m['when']} on {place}; load average {m['load'][1]:.1f}.{note}{part}"


# ------------------------------------------------------------------ one function a benchmark


def primitives(result: Result) -> list[str]:
    blocks = []
    for title, key in (
        ("Dispatch, bfloat16: how long the sender is blocked, as a multiple of ours", "rows"),
        ("Dispatch, int8", "rows_int8"),
        ("Combine: the slowest sender", "rows_combine"),
    ):
        for dtype in dict.fromkeys(row["dtype"] for row in result[key]):
            rows = [row for row in result[key] if row["dtype"] == dtype]
            name = title if key != "rows_combine" else f"{title}, {dtype}"
            blocks += [f"**{name}**", table(by_peer(rows, "blocked_ratio"))]
    blocks += ["**Dispatch, bfloat16: until the last receiver sees its rows, as a multiple of ours**"]
    blocks += [table(by_peer(result["rows"], "delivered_ratio")), "**Our own times**"]
    ours = [row for key in ("rows", "rows_int8", "rows_combine") for row in result[key] if row["peer"] == "async"]
    blocks += [
        table(
            [
                {"what": f"{row['primitive']} {row['dtype']}"}
                | where(row)
                | {
                    "blocked (ms)": row["blocked_us"] / 1e3,
                    "delivered (ms)": row["delivered_us"] / 1e3,
                    "private (ms)": row["private_us"] / 1e3,
                    "GB/s": row["gb_per_s"],
                }
                for row in ours
            ]
        )
    ]
    ratio = result["memcpy_ratio"]
    if ratio is not None:
        blocks.append(
            f"A plain copy of the same bytes by one thread takes {text(ratio)} times our delivery (8k tokens)."
        )
    (HERE / "communication.svg").write_text(chart(result["rows"]))
    return blocks


def where(row: Mapping[str, Any]) -> Result:
    return {"tokens": row["tokens"], "receivers": row["receivers"], "receivers are": "busy" if row["busy"] else "idle"}


def by_peer(rows: Sequence[Mapping[str, Any]], ratio: str) -> list[Result]:
    """One row a size, one column a peer."""
    lines: dict[tuple[Any, ...], Result] = {}
    for row in rows:
        line = lines.setdefault(tuple(where(row).values()), where(row))
        if row["peer"] != "async":
            line[row["peer"]] = row[ratio]
    return list(lines.values())


def superkernel(result: Result) -> list[str]:
    numbers = {
        "kernel": result["kernel"],
        "threads": result["threads"],
        "dispatch over eager": result["dispatch_ratio"],
        "inflection (rows an expert)": result["inflection_rows_per_expert"],
    }
    return [table(result["rows"]), table([numbers])]


def attention(result: Result) -> list[str]:
    return [table(result["rows"]), table([{"kernel": result["kernel"], "threads": result["threads"]}])]


def engine(result: Result) -> list[str]:
    blocks = []

    def quiet(part: str) -> str:
        """How much else ran while a part was measured."""
        load = result.get("measured", {}).get(part, {}).get("load")
        if load is None:
            return ""
        return f" **Load average {load:.1f}: disturbed.**" if loaded(result, load) else f" Load average {load:.1f}."

    efficiency, over = result["disaggregation_efficiency"], result["reference_over_transformers"]
    if efficiency:
        shares = f"attention share {text(efficiency['attention_share'])}, batches of {efficiency['batch']}"
        blocks.append(
            f"**Disaggregation efficiency** (shared cores): {interval(efficiency)}; {shares}.{quiet('shared')}"
        )
    if over:
        blocks.append(f"**Reference over transformers**, prefill tokens per second, bfloat16: {text(over)}.")
    if result.get("fixed_rates"):
        blocks += ["**Mean TTFT at fixed rates** (paced, --quick)", table(result["fixed_rates"])]
    for name, found in result.get("slo", {}).items():
        blocks += [
            f"**SLO throughput, lengths of {name}** (paced, clock {text(found['pace'])}; SLO {text(found['slo_s'])} s; "
            f"runs of {text(found['run_s'])} s; {text(found['mean_tokens'])} tokens a prompt; "
            f"{found['excluded']} beyond S)." + quiet(f"slo/{name}"),
            table([contender(result, name, s) for s in found["slo_rps"]]),
            table([{"ratio": pair, "value (95%)": interval(one)} for pair, one in found["ratios"].items()]),
        ]
    if result["factorial"]:
        f = result["factorial"]
        kept = "all keep the SLO" if f["sustained"] else "not all keep the SLO"
        rows = [{"on": ", ".join(row["on"]) or "none", "mean TTFT (s)": row["mean_ttft_s"]} for row in f["rows"]]
        blocks += [
            f"**The four optimizations** on {f['devices']} at {text(f['rps'])} requests/s ({f['traffic']}; {kept})."
            + quiet("factorial")
        ]
        blocks += [table(rows)]
        if f["effects"]:
            blocks.append(
                table([{"optimization": n, "TTFT with / without (95%)": interval(e)} for n, e in f["effects"].items()])
            )
    if result["net_cost"]:
        c = result["net_cost"]
        rows = [{"part": g, "asap minus default (s, 95%)": interval(e)} for g, e in c["groups"].items()]
        rows.append({"part": "TTFT", "asap minus default (s, 95%)": interval(c["asap_minus_default"]["ttft"])})
        blocks += [f"**Net cost**, {c['devices']}, at {text(c['rps'])} requests/s ({c['traffic']}).{quiet('net_cost')}"]
        blocks += [table(rows)]
    return blocks


def contender(result: Result, traffic: str, system: str) -> Result:
    """What a system sustained, and what the twin had expected under the same SLO and clock."""
    measured, twin = result["slo"][traffic], result.get("twin", {}).get(traffic, {})
    found = measured["slo_rps"][system]
    row = {"system": system, "devices": found["devices"], "requests/s (95%)": interval(found)}
    same = all(twin.get(key) == measured[key] for key in ("slo_s", "pace"))
    return row | ({"the twin expects": interval(twin["rps"].get(system))} if same else {})


def twin(result: Result) -> list[str]:
    plain = {key: value for key, value in result.items() if isinstance(value, int | float | str)}
    lists = [value for value in result.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    return [table([plain]), *map(table, lists)]


# ------------------------------------------------------------------ the figure

WIDTH, HEIGHT, LEFT, TOP, GAP, RIGHT = 960, 420, 70, 70, 60, 24


def chart(rows: Sequence[Mapping[str, Any]], receivers: int = 4) -> str:
    """Figure 14 with the peers, as SVG for light and dark pages: blocked time over tokens, both logarithmic."""
    rows = [row for row in rows if row["receivers"] == receivers]
    peers = list(dict.fromkeys(row["peer"] for row in rows))
    wide, high = (WIDTH - LEFT - GAP - RIGHT) / 2, HEIGHT - TOP - 50
    ms = [math.log10(row["blocked_us"] / 1e3) for row in rows]
    low, top = math.floor(min(ms)), math.ceil(max(ms))
    right = math.log10(max(row["tokens"] for row in rows)) or 1.0
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13" fill="{INK}" role="img" aria-label="Time a sender is blocked over the tokens sent">'
    ]
    for k, peer in enumerate(peers):
        x = LEFT + k * (WIDTH - LEFT) / len(peers)
        out += [dot(x, 16, k), label(x + 9, 21, peer, "start", 11)]
    for busy in (False, True):
        left = LEFT + busy * (wide + GAP)
        out.append(label(left, TOP - 14, f"{'busy' if busy else 'idle'} receivers: sender blocked (ms)", "start"))
        for power in range(low, top + 1):
            y = TOP + high * (top - power) / (top - low)
            out.append(f'<path d="M{left:.1f} {y:.1f}h{wide:.0f}" stroke="{GRID}"/>')
            out.append(label(left - 6, y + 4, f"{10.0**power:g}", "end"))
        for tokens in sorted({row["tokens"] for row in rows}):
            out.append(label(left + wide * math.log10(tokens) / right, HEIGHT - 22, str(tokens)))
        for k, peer in enumerate(peers):
            line = sorted((r["tokens"], r["blocked_us"] / 1e3) for r in rows if (r["peer"], r["busy"]) == (peer, busy))
            points = [
                (left + wide * math.log10(n) / right, TOP + high * (top - math.log10(t)) / (top - low)) for n, t in line
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{SERIES[k]}" stroke-width="2"/>')
            out += [dot(x, y, k) for x, y in points]
    return "\n".join([*out, label(WIDTH / 2, HEIGHT - 4, "tokens"), "</svg>"]) + "\n"


def dot(x: float, y: float, k: int) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{SERIES[k]}"/>'


def label(x: float, y: float, words: str, anchor: str = "middle", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def main(folder: Path) -> None:
    HERE.mkdir(exist_ok=True)
    for name, blocks_of in (
        ("primitives", primitives),
        ("superkernel", superkernel),
        ("attention", attention),
        ("engine", engine),
        ("twin", twin),
    ):
        saved = folder / f"bench-{name}.json"
        if saved.exists():
            result = json.loads(saved.read_text())
            blocks = [machine(result), *blocks_of(result)]
        else:
            blocks = [f"Not measured yet: `asaplab bench {name} --out docs/benchmarks`."]
        (HERE / f"{name}.md").write_text("\n\n".join(blocks) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
