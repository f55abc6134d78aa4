"""The named systems. Each is a value: an ablation changes one field with ``dataclasses.replace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from asaplab.core import Batching, Instance, Pipeline, Placement, System, Transport
from asaplab.errors import InputError
from asaplab.scheduler.asynchronous import AsynchronousScheduler
from asaplab.scheduler.events import Scheduler
from asaplab.scheduler.synchronous import Cost, SynchronousScheduler


def asap() -> System:
    """The paper's system: sections 3.1-3.4, overlap on MoE devices only (4.3), but two slots a region instead of one.

    With a slot for each batch in flight no send ever waits; it doubles the buffers of Table 2.
    """
    return System(name="asap")


def asap_one_slot() -> System:
    """asap with Table 2's single buffer a region; two batches in flight then need FIFO order."""
    return System(name="asap-one-slot", transport=Transport(slots=1, order="fifo"))


def default() -> System:
    """Section 5.1 "Default": colocated stages, batches of similar token totals, barriers around every MoE layer."""
    return System(
        name="default",
        placement=Placement(kind="colocated"),
        batching=Batching(policy="balanced"),
        pipeline=Pipeline(barrier=True, in_flight=1, overlap=frozenset()),
        transport=Transport(primitives="all_to_all", slots=1, order="fifo"),
    )


def chunked() -> System:
    """Section 5.1 "ChunkedPrefill": default with prompts in pieces of at most 8,192 tokens, whole pieces only."""
    return replace(default(), name="chunked", batching=Batching(policy="balanced", chunk_tokens=8192))


def chunked_filled() -> System:
    """chunked with prompts split so that every chunk is full, as common servers do; the paper does not say which."""
    batching = replace(chunked().batching, fill_chunks=True)
    return replace(default(), name="chunked-filled", batching=batching)


def better_sync() -> System:
    """What a synchronous scheduler can still do: chunks of 16,384, filled, dealt out by cost instead of by tokens."""
    batching = Batching(policy="balanced", chunk_tokens=16384, fill_chunks=True, balance="cost")
    return replace(default(), name="better-sync", batching=batching)


def _ping_pong(name: str, micro_batches: int) -> System:
    return System(
        name=name,
        batching=Batching(policy="balanced"),
        pipeline=Pipeline(barrier=True, in_flight=micro_batches),
        transport=Transport(slots=micro_batches, order="fifo"),
    )


def megascale_infer() -> System:
    """MegaScale-Infer (arXiv 2504.02263): disaggregated, m micro-batches in ping-pong, one-sided M-to-N sends.

    m = 4 holds its rule m >= 2 (1 + Tc / Tf) for Tc <= Tf; batching as in default, which its paper leaves open.
    """
    return _ping_pong("megascale-infer", 4)


def step3() -> System:
    """Step-3 (arXiv 2507.19427): a pipeline of attention, network and experts, so three micro-batches."""
    return _ping_pong("step3", 3)


def _asap_but(name: str, **fields: object) -> System:
    return replace(asap(), name=name, **fields)  # type: ignore[arg-type]


def _ablations() -> dict[str, Callable[[], System]]:
    """asap with one mechanism taken away (section 5.5, and what it leaves open)."""
    a = asap()
    changed: dict[str, dict[str, object]] = {
        "asap-no-dual-batch": {"pipeline": replace(a.pipeline, in_flight=1)},  # section 5.5.1
        "asap-no-overlap": {"pipeline": replace(a.pipeline, overlap=frozenset())},  # section 5.5.2
        "asap-no-super-kernel": {"pipeline": replace(a.pipeline, layer_oblivious=False)},  # section 5.5.3
        "asap-p2p": {"transport": replace(a.transport, primitives="p2p")},  # only the primitives are synchronous
        # a group takes a new batch when one of its two is done, instead of a new pair when both are
        "asap-refill-slot": {"pipeline": replace(a.pipeline, refill="slot")},
        "asap-fcfs": {"batching": replace(a.batching, policy="fcfs")},  # no length-aware batches
    }
    return {name: partial(_asap_but, name, **fields) for name, fields in changed.items()}


NAMED: dict[str, Callable[[], System]] = {
    "asap": asap,
    "asap-one-slot": asap_one_slot,
    "default": default,
    "chunked": chunked,
    "chunked-filled": chunked_filled,
    "better-sync": better_sync,
    "megascale-infer": megascale_infer,
    "step3": step3,
    **_ablations(),
}


def named(name: str) -> System:
    """The system of that name.

    Raises:
        InputError: no system has the name.
    """
    if name not in NAMED:
        raise InputError(f"there is no system {name!r}; the named systems are {', '.join(NAMED)}")
    return NAMED[name]()


def scheduler_of(system: System, groups: int, cost: Cost | None = None) -> Scheduler:
    """The request scheduler of a system for that many DP groups: one policy body for engine and twin."""
    if system.pipeline.barrier:
        return SynchronousScheduler(system, groups, cost)
    return AsynchronousScheduler(system, groups)


def place(system: System, asked: Instance, tp: int | None = None) -> tuple[Instance, tuple[str, ...]]:
    """The devices as the system uses them, and a note where that is not what was asked.

    A colocated system spreads both stages over all D*T + E devices. It keeps T if T divides their number, and else
    takes T = 1 and says so.

    Raises:
        InputError: ``tp`` does not divide the number of devices.
    """
    if system.placement.kind == "disaggregated":
        return (asked if tp is None else Instance(D=asked.D, T=tp, E=asked.E)), ()
    n = asked.devices
    if tp is not None:
        if tp < 1 or n % tp:
            raise InputError(
                f"--tp {tp} does not divide the {n} devices of system {system.name!r}; choose a divisor of {n}"
            )
        return Instance(D=n // tp, T=tp, E=n), ()
    if n % asked.T == 0:
        return Instance(D=n // asked.T, T=asked.T, E=n), ()
    note = f"system {system.name!r} runs with T = 1, because T = {asked.T} does not divide its {n} devices"
    return Instance(D=n, T=1, E=n), (note,)
