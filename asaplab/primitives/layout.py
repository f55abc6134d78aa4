"""Where everything lies in a device's shared segment (section 3.2, Table 2): every offset and size from Dims.

A MoE device has a region for each DP group, doubled for each slot, with a row for each rank of the group::

    header | flags (D*slots*T words) | metadata (one a row) | tokens (one area a row)

An attention device has, for each slot, one area of expert results and a flag and header for each MoE device::

    header | flags (slots*E words) | result headers | results (one area a slot)

Two things differ from the paper, and both only save memory. A token crosses to a device once, whatever number of its
K experts lie there (``copies`` = 1; the paper's K copies are ``copies`` = K), so a row's metadata also says which rows
each expert takes. And the results of a slot are exactly K*S/T rows: the sender's header tells each MoE device where its
rows begin, instead of a segment for the worst case of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from asaplab.core import expert_shares
from asaplab.errors import InputError

LINE, PAGE = 64, 4096
CGROUP = Path("/sys/fs/cgroup")
HEADER_WORDS = 8  # int64 words in a row's header and in a result header: one cache line
ABORT_AT, EPOCH_AT, BELL_AT = 8, 16, 64  # in the first page of every segment, after its magic number


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to


@dataclass(frozen=True, kw_only=True)
class Dims:
    """What the layout follows from, in the symbols of Table 1. ``Dsize`` is in bytes."""

    D: int
    T: int
    E: int
    E_total: int
    K: int
    H: int
    S: int
    Dsize: int = 2
    slots: int = 1  # 1 is Table 2; 2 double it
    copies: int = 1  # rows a token takes in a device's region: 1, or K as in the paper

    def __post_init__(self) -> None:
        for symbol in ("D", "T", "E", "E_total", "K", "H", "S", "Dsize", "slots"):
            if getattr(self, symbol) < 1:
                raise InputError(f"{symbol} is {getattr(self, symbol)}; a layout needs at least 1")
        if self.E_total < self.K:
            raise InputError(
                f"K is {self.K} but the model has {self.E_total} experts; a token chooses each at most once"
            )
        if self.copies not in (1, self.K):
            raise InputError(f"copies is {self.copies}; choose 1 (one row a device) or K = {self.K} (the paper's)")
        expert_shares(self.E_total, self.E)

    @property
    def rank_tokens(self) -> int:
        """Most tokens of one rank: ceil(S / T)."""
        return -(-self.S // self.T)

    @property
    def share(self) -> int:
        """Most experts of one MoE device: ceil(E_total / E)."""
        return -(-self.E_total // self.E)

    @property
    def id_bytes(self) -> int:
        """Width of an expert id: follows E_total, so that Kimi-K2's 384 experts get two bytes."""
        return 1 if self.E_total <= 1 << 8 else 2 if self.E_total <= 1 << 16 else 4


@dataclass(frozen=True, kw_only=True)
class Areas:
    """Offsets in one segment: ``count`` flags, headers of ``header_stride`` and payload areas of ``payload_stride``."""

    count: int
    flags: int
    headers: int
    header_stride: int
    payload: int
    payload_stride: int
    payloads: int

    @property
    def size(self) -> int:
        return self.payload + self.payloads * self.payload_stride

    def flag(self, k: int) -> int:
        """Flags have a cache line each: writers never share one."""
        return self.flags + k * LINE

    def header(self, k: int) -> int:
        return self.headers + k * self.header_stride

    def area(self, k: int) -> int:
        return self.payload + k * self.payload_stride

    def index(self, k: int, d: Dims) -> int:
        """Where the rows of each expert's tokens are listed: after the header and the counts."""
        return self.header(k) + HEADER_WORDS * 8 + 4 * aligned(d.share, 2)


def _areas(count: int, header_stride: int, payload_bytes: int, payloads: int) -> Areas:
    flags = PAGE
    headers = aligned(flags + count * LINE, PAGE)
    stride = aligned(header_stride, LINE)
    payload = aligned(headers + count * stride, PAGE)
    return Areas(
        count=count,
        flags=flags,
        headers=headers,
        header_stride=stride,
        payload=payload,
        payload_stride=aligned(payload_bytes, PAGE),
        payloads=payloads,
    )


def moe_areas(d: Dims) -> Areas:
    """A MoE device: row j of slot b of region i is number ``(i * slots + b) * T + j``.

    A row's metadata: header, ``share`` counts (int32), and the row of each expert's tokens (int32).
    """
    rows = d.D * d.slots * d.T
    metadata = HEADER_WORDS * 8 + 4 * aligned(d.share, 2) + 4 * min(d.K, d.share) * d.rank_tokens
    return _areas(rows, metadata, d.rank_tokens * min(d.copies, d.share) * d.H * d.Dsize, rows)


def attention_areas(d: Dims) -> Areas:
    """An attention device: flag and header of device e for slot b are number ``b * E + e``; one results area a slot."""
    return _areas(d.slots * d.E, HEADER_WORDS * 8, d.K * d.rank_tokens * d.H * d.Dsize, d.slots)


def moe_bytes(d: Dims) -> int:
    return moe_areas(d).size


def attention_bytes(d: Dims) -> int:
    return attention_areas(d).size


def group_bytes(d: Dims) -> int:
    """The segment of one DP group: a page of words for each purpose, T partial sums of a batch and one whole batch."""
    return 4 * PAGE + (d.T + 1) * aligned(d.S * d.H * d.Dsize, PAGE) if d.T > 1 else PAGE


def required_bytes(d: Dims) -> int:
    """All segments of an instance."""
    return d.D * d.T * attention_bytes(d) + d.E * moe_bytes(d) + d.D * group_bytes(d)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of Table 2: what it holds, the paper's formula and its value, in ``unit``."""

    device: str
    holds: str
    formula: str
    value: int
    unit: str = "bytes"


def table2(d: Dims) -> dict[str, Entry]:
    """Table 2 for these dimensions and one slot, by the paper's own formulas."""
    K, S, T, H, E = d.K, d.S, d.T, d.H, d.E
    return {
        "attention-ids": Entry(
            device="attention", holds="expert ids", formula="K*S/T ids", value=K * S // T * d.id_bytes
        ),
        "attention-results": Entry(
            device="attention", holds="expert results", formula="H*K*S*Dsize/T", value=H * K * S * d.Dsize // T
        ),
        "attention-flags": Entry(device="attention", holds="arrival bitmap", formula="E/8", value=-(-E // 8)),
        "moe-metadata": Entry(
            device="moe",
            holds="token counts",
            formula="D*T*E_total/E",
            value=d.D * T * d.E_total // E,
            unit="integers",
        ),
        "moe-tokens": Entry(
            device="moe", holds="hidden states", formula="D*H*K*S*Dsize", value=d.D * H * K * S * d.Dsize
        ),
        "moe-flags": Entry(device="moe", holds="readiness bitmaps", formula="D*T/8", value=-(-d.D * T // 8)),
    }


def check_memory(d: Dims) -> None:
    """Refuse dimensions whose segments do not fit, before anything is started.

    Raises:
        InputError: less memory is free than the segments need; names the formula and both figures.
    """
    need, free = required_bytes(d), available_bytes()
    if need > free:
        raise InputError(
            f"the shared segments need {need:,} bytes of memory, D*T*(K*S/T*H*Dsize*slots) + E*(D*slots*S*H*Dsize) "
            f"and headers with D={d.D} T={d.T} E={d.E} K={d.K} S={d.S} H={d.H} Dsize={d.Dsize} slots={d.slots}, but "
            f"{free:,} are available; lower S (--max-batch-tokens) or the number of devices"
        )


def available_bytes() -> int:
    """Free memory of the machine, or what the control group still grants, whichever is less."""
    free = psutil.virtual_memory().available
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    try:
        text = limit.read_text().strip()
        return free if text == "max" else min(free, int(text) - int(used.read_text()))
    except (OSError, ValueError):
        return free
