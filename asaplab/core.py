"""The nouns of asaplab: what is asked (Request, Workload), what runs (System, Instance) and what comes out (Run).

Symbols are the paper's (Table 1) and mean the same everywhere in the package:

======== ============================================== ==============
symbol   definition                                     representative
======== ============================================== ==============
D        attention DP groups                            4
T        TP degree of each attention DP group           4
E        MoE devices (expert parallelism)               16
E_total  routed experts in the model                    256
K        experts chosen for a token (top-k)             8
L        layers of the model                            61
H        hidden size                                    7168
Dsize    bytes of one activation element                2
S        largest number of tokens in one batch          32k
======== ============================================== ==============

Tensor names carry their shape as a suffix: ``x_TH`` is tokens x hidden, ``y_mH`` is m expert rows x hidden.
Times are seconds (``_s``) as float64, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from asaplab.errors import require, require_choices

# The parts of a request's TTFT along its critical path, in path order. They sum to TTFT.
TTFT_PARTS = (
    "batching_wait",  # arrival until its batch is handed to a DP group
    "attention_queue",  # the batch is ready for a layer, the attention devices work on another batch
    "attention",  # attention stage compute: norm, attention, router, shared expert, dense layers
    "tp",  # reduce-scatter and all-gather over the T ranks
    "dispatch",  # from the end of attention compute until the last region is complete
    "moe_queue",  # the region is complete, the MoE device works on another one
    "moe",  # super kernel
    "combine",  # from the kernel's end until the rows are weighted and summed
    "barrier_wait",  # synchronous systems: waiting for the slowest device before and after the MoE layer
    "host",  # scheduling, embedding, final norm and LM head
)


class Request(NamedTuple):
    """One prompt: ``tokens`` long, arriving ``arrival_s`` after the start of the workload."""

    id: int
    arrival_s: float
    tokens: int


class Piece(NamedTuple):
    """The part ``[start, start + tokens)`` of a prompt; a whole prompt unless the system chunks."""

    request: int
    start: int
    tokens: int
    last: bool  # the piece that holds the prompt's last token, so that the first token follows


class Batch(NamedTuple):
    """Pieces that run through the layers together on one DP group."""

    id: int
    pieces: tuple[Piece, ...]

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    @property
    def sum_squares(self) -> int:
        """What attention pays for: the growth of each prompt's squared length (section 2.2.1)."""
        return sum((p.start + p.tokens) ** 2 - p.start**2 for p in self.pieces)


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """Requests as columns, in order of arrival. Row i is ``Request(i, arrival_s[i], tokens[i])``.

    Prompts are random token ids drawn from ``seed`` unless ``token_ids`` holds them; blocks of
    ``block_tokens`` tokens with equal ``hash_ids`` have equal ids.
    """

    arrival_s: np.ndarray  # float64, non-decreasing
    tokens: np.ndarray  # int64, at least 1
    name: str = "workload"
    seed: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)  # provenance: file, checksum, scales
    excluded: int = 0  # prompts beyond S that were left out before the run
    block_tokens: float = 512  # tokens of a prefix block; a fraction after length scaling
    hash_ids: tuple[tuple[int, ...], ...] | None = None
    token_ids: tuple[np.ndarray, ...] | None = None

    def __post_init__(self) -> None:
        who, n, lengths = f"workload {self.name!r}: ", len(self.arrival_s), self.tokens
        require(n == len(lengths), who + f"{n} arrivals but {len(lengths)} lengths; give one length for each arrival")
        least = int(lengths.min()) if n else 1
        require(least >= 1, who + f"a prompt has {least} tokens; every prompt needs at least 1")
        ordered = np.isfinite(self.arrival_s).all() and not np.any(np.diff(self.arrival_s) < 0)
        require(bool(ordered), who + "arrival times must be finite and in order; sort them first")
        rows = n if self.hash_ids is None else len(self.hash_ids)
        require(rows == n, who + f"{rows} rows of hash_ids for {n} requests; give one row for each request")
        agree = self.token_ids is None or [len(ids) for ids in self.token_ids] == list(lengths)
        require(agree, who + "token_ids do not have the lengths in tokens; make them agree")

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[Request]:
        for i in range(len(self)):
            yield Request(i, float(self.arrival_s[i]), int(self.tokens[i]))


# ------------------------------------------------------------------ a system: a point in a space of mechanisms


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the stages live (section 3.1)."""

    kind: Literal["colocated", "disaggregated"] = "disaggregated"
    shared_expert: Literal["attention", "moe"] = "attention"

    def __post_init__(self) -> None:
        require_choices(self)


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How requests become batches (section 3.3.1). Token counts are per batch, or per DP group and step."""

    policy: Literal["length_aware", "balanced", "fcfs"] = "length_aware"
    threshold_tokens: int = 2048  # length_aware closes a batch here: the MoE inflection point (Figure 3b)
    longest_wait_s: float = 0.05  # ... or when its oldest request has waited this long (assumed: not in the paper)
    max_tokens: int = 32768  # S: no batch is larger
    solo_tokens: int = 16384  # a longer prompt runs alone on its DP group (section 3.3.2)
    budget_tokens: int = 32768  # balanced: most tokens a DP group takes in one step
    chunk_tokens: int | None = None  # balanced: split prompts into pieces of at most this many tokens
    fill_chunks: bool = False  # split prompts so that every chunk is full
    balance: Literal["tokens", "cost"] = "tokens"  # what balanced evens out over the DP groups
    queue: Literal["fcfs", "shortest_first"] = "fcfs"

    def __post_init__(self) -> None:
        require_choices(self)
        for name in ("threshold_tokens", "max_tokens", "solo_tokens", "budget_tokens"):
            require(getattr(self, name) >= 1, f"batching.{name} is {getattr(self, name)}; it must be at least 1")
        require(
            0 <= self.longest_wait_s < float("inf"),
            f"batching.longest_wait_s is {self.longest_wait_s}; it must be finite and not negative",
        )
        require(
            self.chunk_tokens is None or self.chunk_tokens >= 1,
            f"batching.chunk_tokens is {self.chunk_tokens}; it must be at least 1, or None",
        )
        require(
            self.chunk_tokens is None or self.policy == "balanced",
            f"batching.chunk_tokens needs policy 'balanced', not {self.policy!r}",
        )
        require(
            not self.fill_chunks or self.chunk_tokens is not None,
            "batching.fill_chunks needs chunk_tokens; set chunk_tokens or drop fill_chunks",
        )


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How batches flow through the layers (sections 3.3.2 and 3.4)."""

    barrier: bool = False  # all DP groups meet before and after every MoE layer
    in_flight: int = 2  # batches in flight for each DP group (2: dual-batch interleaving)
    refill: Literal["pair", "slot"] = "pair"  # a group takes new batches when idle, or as soon as a place is free
    overlap: frozenset[str] = frozenset({"moe"})  # roles whose communication runs on threads of its own (section 4.3)
    layer_oblivious: bool = True  # one super kernel for all layers; False pays dispatch_s on the host each layer
    dispatch_s: float = 220e-6  # host time to dispatch one per-layer kernel (section 5.5.3)

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.in_flight >= 1, f"pipeline.in_flight is {self.in_flight}; a DP group holds at least 1 batch")
        require(
            self.overlap <= {"attention", "moe"},
            f"pipeline.overlap names {sorted(self.overlap)}; the roles are 'attention' and 'moe'",
        )
        require(self.dispatch_s >= 0, f"pipeline.dispatch_s is {self.dispatch_s}; it must not be negative")


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How rows travel between the stages (section 3.2)."""

    primitives: Literal["async", "p2p", "all_to_all"] = "async"
    slots: int = 2  # buffers for each DP group in a region; the paper has 1
    order: Literal["fifo", "ready"] = "ready"  # which of a group's batches goes next

    def __post_init__(self) -> None:
        require_choices(self)
        require(self.slots >= 1, f"transport.slots is {self.slots}; a region needs at least 1")


@dataclass(frozen=True, kw_only=True)
class System:
    """A serving system as a point in the space of mechanisms. An ablation is ``dataclasses.replace``."""

    name: str
    placement: Placement = Placement()
    batching: Batching = Batching()
    pipeline: Pipeline = Pipeline()
    transport: Transport = Transport()

    def __post_init__(self) -> None:
        p, b, f, t = self.placement, self.batching, self.pipeline, self.transport
        colocated, balanced = p.kind == "colocated", b.policy == "balanced"
        a2a, flights = t.primitives == "all_to_all", f"{t.slots} slot(s) for {f.in_flight} batches in flight"
        for holds, rule in (
            (
                f.barrier or not colocated,
                "colocated stages need pipeline.barrier=True: every device sends and receives",
            ),
            (a2a or not colocated, f"colocated stages exchange rows by all_to_all, not {t.primitives!r}"),
            (f.in_flight == 1 or not colocated, f"colocated stages hold 1 batch a DP group, not {f.in_flight}"),
            (
                not (f.overlap and colocated),
                "colocated stages have nothing to overlap; set pipeline.overlap=frozenset()",
            ),
            (f.barrier or not a2a, "all_to_all is a collective and needs pipeline.barrier=True"),
            (
                f.barrier or t.slots >= f.in_flight or t.order == "fifo",
                flights + " deadlock unless transport.order='fifo'",
            ),
            (balanced or not f.barrier, f"a barrier steps all DP groups and needs policy 'balanced', not {b.policy!r}"),
            (
                f.barrier or not balanced,
                "policy 'balanced' deals out synchronous steps and needs pipeline.barrier=True",
            ),
        ):
            require(holds, f"system {self.name!r}: {rule}")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """The devices of one prefill instance: D x T attention devices and E MoE devices (section 3.1).

    A colocated system runs both stages on every device: D * T and E then count the same devices.
    """

    D: int
    T: int
    E: int

    def __post_init__(self) -> None:
        for symbol in "DTE":
            require(getattr(self, symbol) >= 1, f"{symbol} is {getattr(self, symbol)}; an instance needs at least 1")

    @property
    def devices(self) -> int:
        return self.D * self.T + self.E


def expert_shares(E_total: int, E: int) -> tuple[range, ...]:
    """The experts of each MoE device: consecutive, sizes differ by at most one, larger shares first.

    Raises:
        InputError: there are more devices than experts.
    """
    require(1 <= E <= E_total, f"E is {E} but the model has {E_total} experts; choose 1 <= E <= {E_total}")
    small, larger = divmod(E_total, E)
    ends = [0]
    for e in range(E):
        ends.append(ends[-1] + small + (e < larger))
    return tuple(range(a, b) for a, b in pairwise(ends))


def token_shares(n: int, T: int) -> tuple[range, ...]:
    """The tokens of each rank after a reduce-scatter: consecutive, possibly none."""
    return tuple(range(n * j // T, n * (j + 1) // T) for j in range(T))


# ------------------------------------------------------------------ a run: the one type that every figure reads


class Span(NamedTuple):
    """One piece of work of one device: ``kind`` on ``stream`` for a layer of a batch."""

    device: str  # "attention 0.1" and "colocated 0.1" (group.rank), "moe 3", "host"
    stream: str  # "compute", "send", "receive"
    kind: str  # a name of TTFT_PARTS, or "idle"
    batch: int
    layer: int
    start_s: float
    end_s: float
    tokens: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """What a workload did on an instance, from either body. Columns are numpy arrays of one length."""

    system: System
    instance: Instance
    mode: str  # "paced", "shared cores" or "simulated"
    requests: Mapping[str, np.ndarray]  # id, arrival_s, tokens, batch, ttft_s, first_token, one column a TTFT part
    spans: Mapping[str, np.ndarray]  # the fields of Span; empty where no span was asked for
    utilization: Mapping[str, float]  # share of busy time by role
    excluded: int
    configuration: Mapping[str, Any]
    provenance: Mapping[str, Any]
    logits: Mapping[int, np.ndarray] | None = None  # of each first token, by request; kept when asked for, never saved
    kv: Mapping[int, Any] | None = None  # by request: (K_hsd, V_hsd) of every layer; likewise
