"""Draw docs/pipeline.svg: the same requests on the same devices, with barriers and without.

    python docs/picture.py

The bars are spans of two paced runs of the real engine; nothing is drawn by hand. Mid-grey ink on a clear ground
reads on light and dark pages alike.
"""

from __future__ import annotations

import html
from pathlib import Path

import asaplab
from asaplab.core import Run
from asaplab.lab.workloads import traffic
from asaplab.observe import metrics
from asaplab.observe.spans import natural, spans_of
from asaplab.show.style import INK, PART_COLOURS, SERIES
from asaplab.show.window import busy_window

WIDTH, GUTTER, ROW, HEAD = 1000, 110, 20, 44
TITLES = {
    "default": "default: everybody meets before and after every expert layer",
    "asap": "asap: nobody waits for anybody else",
}
COLOURS = [SERIES[i] for i in (0, 3, 4, 5, 6, 7)]


def runs() -> dict[str, Run]:
    workload = traffic(rps=12, limit=24, length_scale=0.05, seed=1)
    made = {}
    for system in TITLES:
        with asaplab.deploy("tiny-deepseek-v3", attention=(2, 1), experts=2, system=system, mode="paced") as instance:
            made[system] = instance.prefill(workload)
    return made


def panel(run: Run, top: float, width_s: float) -> tuple[list[str], float]:
    """The SVG elements of one run from ``top`` on, and where they end."""
    spans = spans_of(run)
    start, _ = busy_window(run, 300)
    scale = (WIDTH - GUTTER) / width_s
    devices = sorted(set(spans["device"].tolist()), key=lambda device: natural((device, "")))
    mean = metrics(run)["mean_ttft_s"]
    parts = [
        f'<text x="0" y="{top + 18}" class="title">{html.escape(TITLES[run.system.name])}</text>',
        f'<text x="{WIDTH}" y="{top + 18}" text-anchor="end">mean TTFT {1e3 * mean:.0f} ms</text>',
    ]
    for row, device in enumerate(devices):
        y = top + HEAD - 12 + row * ROW
        parts.append(f'<text x="{GUTTER - 8}" y="{y + 14}" text-anchor="end">{html.escape(device)}</text>')
        parts.append(
            f'<rect x="{GUTTER}" y="{y + 1}" width="{WIDTH - GUTTER}" height="{ROW - 2}" fill="{INK}" opacity="0.12"/>'
        )
        mine = (spans["device"] == device) & (spans["end_s"] > start) & (spans["start_s"] < start + width_s)
        for kind, batch, a, b in zip(*(spans[name][mine].tolist() for name in ("kind", "batch", "start_s", "end_s"))):
            if kind == "idle":
                continue
            left, right = max(a, start), min(b, start + width_s)
            waits = kind.endswith("wait")
            fill = PART_COLOURS[kind] if waits else COLOURS[batch % len(COLOURS)]
            inset = ROW * 0.36 if waits else 2
            parts.append(
                f'<rect x="{GUTTER + (left - start) * scale:.1f}" y="{y + inset:.1f}" '
                f'width="{max((right - left) * scale, 0.5):.1f}" height="{ROW - 2 * inset:.1f}" fill="{fill}"/>'
            )
    return parts, top + HEAD + len(devices) * ROW


def main() -> None:
    made = runs()
    width_s = min(end - start for start, end in (busy_window(run, 300) for run in made.values()))
    body: list[str] = []
    top = 0.0
    for run in made.values():
        parts, top = panel(run, top, width_s)
        body += parts
    legend = (
        f'colours are batches, <tspan fill="{PART_COLOURS["barrier_wait"]}">thin red is waiting at a barrier</tspan>'
    )
    body.append(f'<text x="{GUTTER}" y="{top + 12}">{legend}, empty is idle; {1e3 * width_s:.0f} ms of each run</text>')
    style = f"text {{ font: 13px system-ui, sans-serif; fill: {INK}; }} .title {{ font-weight: 600; font-size: 15px; }}"
    size = f'viewBox="0 0 {WIDTH} {top + 20:.0f}" role="img" aria-label="Pipelines with barriers and without"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{"".join(body)}</svg>\n'
    Path(__file__).with_name("pipeline.svg").write_text(svg)


if __name__ == "__main__":
    main()
