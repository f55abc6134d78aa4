"""The statements and open questions that notebooks answer by measuring or by experiment, in our words."""

from __future__ import annotations

from typing import Any

from asaplab.lab.claims_rows import Claim

_OPEN = {
    "q-optimizations-alone": "the four optimizations without asynchronous primitives, in all 16 combinations",
    "q-net-cost": "time saved by removing barriers, against what queueing, communication and scheduling add",
    "q-variance": "the gain over the variance of lengths and arrivals",
    "q-run-length": "rates that are truly sustained, where a five-minute mean hides a slow overload",
    "q-overload": "past the ceiling: collapse, fairness by length, admission control",
    "q-receiver-death": "a receiver dies holding a set flag: who hangs, for how long, what is lost",
    "q-rdma": "from which interconnect latency and bandwidth on asynchrony stops paying",
    "q-decode": "what the same design gains in decode",
    "q-hardware-model": "what survives on measured GPU costs and with other models",
    "q-why-five-percent": "why a public plugin reports 5 to 9% where the paper reports 90%",
    "q-expert-skew": "expert imbalance together with asynchrony",
    "q-prefix-cache": "prefix-cache hits as a source of DP imbalance",
}
_TABLE2 = {
    "table2-attention-ids": (65_536.0, "bytes", "K*S/T expert ids of one byte"),
    "table2-attention-results": (939_524_096.0, "bytes", "H*K*S*Dsize/T, printed as 0.9 GB"),
    "table2-attention-flags": (2.0, "bytes", "E/8"),
    "table2-moe-metadata": (256.0, "integers", "D*T*E_total/E, printed as less than 1 KB"),
    "table2-moe-tokens": (15_032_385_536.0, "bytes", "D*H*K*S*Dsize, printed as 14 GB"),
    "table2-moe-flags": (2.0, "bytes", "D*T/8"),
}

NOTEBOOK_CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="attention-sum-of-squares",
        section="2.2.1",
        kind="shape",
        text="a batch's attention goes with the sum of squared lengths, not with its total",
    ),
    *(
        Claim(id=id, section="3.2", kind="derived", published=value, unit=unit, text=text)
        for id, (value, unit, text) in _TABLE2.items()
    ),
    Claim(
        id="bytes-per-1k-tokens",
        section="5.4",
        kind="published",
        role="anchor",
        published=66_060_288.0,
        unit="bytes",
        text="63 MB are 1024*7168*9; the formula beside it gives 115 MB (int8) or 229 MB (bf16) at E = 16: the 9 is 8 "
        "routed experts and a shared one, or (256+32)/32 experts a device at EP32",
    ),
    Claim(
        id="super-kernel-memory",
        section="3.4.2",
        kind="shape",
        text="no additional weight memory; layers of different batches run in any order",
    ),
    *(Claim(id=id, section="-", kind="open", text=text) for id, text in _OPEN.items()),
)


def unanswered(claim: Claim) -> dict[str, Any]:
    """The ledger's row of a statement before anybody answers it; what goes into a profile says "input"."""
    return {
        "id": claim.id,
        "kind": claim.kind,
        "role": claim.role,
        "section": claim.section,
        "published": claim.published,
        "unit": claim.unit,
        "sense": claim.sense,
        "predicted": "input" if claim.role == "anchor" else None,
        "ci95": None,
        "fitted": False,
        "deviation": None,
        "basis": "published" if claim.role == "anchor" else None,
        "note": claim.text,
    }
