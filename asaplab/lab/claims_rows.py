"""The paper's checkable statements that the twin answers (arXiv 2606.22541): numbers as printed, in our words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement. ``published`` is None for a qualitative law or an open question."""

    id: str
    section: str
    kind: Literal["published", "derived", "shape", "open"]
    role: Literal["anchor", "prediction"] = "prediction"
    published: float | tuple[float, float] | None = None
    unit: str = ""
    sense: Literal["about", "at-most", "at-least", "up-to"] = "about"
    text: str = ""


def _row(id: str, section: str, kind: str, published: object = None, unit: str = "", **more: object) -> Claim:
    return Claim(id=id, section=section, kind=kind, published=published, unit=unit, **more)  # type: ignore[arg-type]


CLAIMS: tuple[Claim, ...] = (
    _row("fig3a-quadratic", "2.2.1", "shape", role="anchor", text="attention: a constant, a linear, a quadratic term"),
    _row("dsa-indexer-quadratic", "2.2.1", "shape", text="sparse attention linear in length, its indexer quadratic"),
    _row("fig4-disparity", "2.2.1", "published", 4.2, "ratio", role="anchor", text="attention, 1 x 32k over 32 x 1k"),
    _row("fig3b-inflection", "2.2.2", "published", 2048.0, "tokens", role="anchor", text="MoE is flat below"),
    _row("trace-min", "2.3", "published", 31.0, "tokens", role="anchor", text="shortest prompt"),
    _row("trace-mean", "2.3", "published", 5000.0, "tokens", role="anchor", text="mean prompt"),
    _row("trace-max", "2.3", "published", 100000.0, "tokens", role="anchor", text="longest prompt"),
    _row("moe-share-16k", "3.3.2", "published", 0.15, "ratio", role="anchor", sense="at-most", text="MoE / attention"),
    _row("attention-several-ms", "3.3.2", "shape", text="beyond 2k tokens attention takes ms, MoE under one to a few"),
    _row("device-count", "4.2", "derived", 32.0, "devices", text="D * T + E = 4 * 4 + 16 = 8 * 4"),
    _row("link-bandwidth", "4.1", "published", 4.0e11, "bytes/s", role="anchor", text="between any two devices"),
    _row("dispatch-512", "5.4", "published", 1e-4, "s", sense="at-most", text="asynchronous dispatch of 512 tokens"),
    _row("dispatch-linear", "5.4", "shape", text="latency linear in tokens, point-to-point linear in receivers too"),
    _row("eaas-512", "5.4", "published", 5e-4, "s", role="anchor", sense="at-least", text="EaaS, 512 tokens"),
    _row("p2p-over-async-1k", "5.4", "published", 4.0, "ratio", text="point-to-point over asynchronous, 1k tokens"),
    _row("p2p-over-async-8k", "5.4", "published", 5.8, "ratio", text="the same at 8k tokens"),
    _row("ttft-rps1-asap", "5.2", "published", 0.350, "s", text="mean TTFT at 1 request/s, asap"),
    _row("ttft-rps1-default", "5.2", "published", 0.533, "s", text="mean TTFT at 1 request/s, Default"),
    _row("ttft-rps1-chunked", "5.2", "published", 0.388, "s", text="mean TTFT at 1 request/s, ChunkedPrefill"),
    _row("ttft-rps4-vs-default", "5.2", "published", 0.451, "ratio", text="asap's mean TTFT over Default's, 4/s"),
    _row(
        "ttft-rps4-vs-chunked", "5.2", "published", 0.582, "ratio", text="asap's mean TTFT over ChunkedPrefill's, 4/s"
    ),
    _row(
        "ttft-rps8-vs-chunked", "5.2", "published", 0.317, "ratio", text="asap's mean TTFT over ChunkedPrefill's, 8/s"
    ),
    _row("slo-asap", "5.2", "published", 20.0, "rps", text="SLO throughput, asap"),
    _row("slo-default", "5.2", "published", 6.8, "rps", text="SLO throughput, Default"),
    _row("slo-chunked", "5.2", "published", 10.5, "rps", text="SLO throughput, ChunkedPrefill"),
    _row("headline-default", "5.2", "derived", 1.94, "share", text="asap's gain over Default"),
    _row(
        "headline-chunked", "5.2", "derived", 0.905, "share", text="asap's gain over ChunkedPrefill: the abstract's 90%"
    ),
    _row("ttft-knee", "5.2", "shape", text="flat, then steep past a knee; asap's knee last; asap best at every rate"),
    _row("short-sync-share", "5.3", "published", 0.55, "share", text="Default, 4/s, under 512 tokens: barrier / TTFT"),
    _row(
        "short-queue-share", "5.3", "published", 0.30, "share", text="Default, 4/s, under 512 tokens: queueing / TTFT"
    ),
    _row("short-nonkernel-cut", "5.3", "published", 0.80, "share", sense="up-to", text="asap's cut of that waiting"),
    _row(
        "kernel-time-equal", "5.3", "shape", text="kernel time alike in both systems; barrier share falls with length"
    ),
    _row("ablate-dual-batch", "5.5.1", "published", 17.5, "rps", text="SLO throughput with one batch in flight"),
    _row("dual-batch-low-load-cost", "5.5.1", "published", 0.065, "share", text="TTFT added by pairs at low load"),
    _row("ablate-overlap", "5.5.2", "published", 17.8, "rps", text="SLO throughput without overlap on MoE devices"),
    _row("dispatch-overhead", "5.5.3", "published", 220e-6, "s", role="anchor", text="host dispatch of one layer"),
    _row("ablate-super-kernel", "5.5.3", "published", 0.06, "share", text="SLO throughput gained by the super kernel"),
    _row(
        "comm-share", "3.4.1", "published", (0.10, 0.20), "share", text="communication over execution, without overlap"
    ),
    _row(
        "barrier-tens-of-ms", "4.4", "published", 0.010, "s", sense="at-least", text="longest barrier wait of a batch"
    ),
    _row("q-settling-ablation", "-", "open", text="asap's scheduling over synchronous point-to-point sends"),
    _row("q-length-aware", "-", "open", text="asap without length-aware batching"),
    _row("q-better-sync", "-", "open", text="a better synchronous scheduler: filled chunks, cost balanced"),
    _row("q-head-to-head", "-", "open", text="asap against MegaScale-Infer's ping-pong on one cost model"),
    _row("q-default-budget", "-", "open", text="Default with at most 8,192 tokens a DP group and step"),
    _row("q-p99", "-", "open", text="asap's gain over ChunkedPrefill when P99 TTFT must keep the SLO"),
)
