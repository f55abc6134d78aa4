"""From reports and telemetry of the devices to a Run."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from asaplab.core import TTFT_PARTS, Batch, Run, Span, Workload
from asaplab.errors import Stalled
from asaplab.observe import provenance

if TYPE_CHECKING:
    from asaplab.engine.deployment import Deployment
    from asaplab.engine.telemetry import Inbox

SETTLE_S = 10.0  # bound on waiting for the last telemetry and KV caches


class Account:
    """Collects what happened to every request of one workload."""

    def __init__(self, live: Deployment, workload: Workload, keep_logits: bool) -> None:
        n = len(workload)
        self.live, self.workload, self.keep_logits = live, workload, keep_logits
        self.start_ns = 0
        self.in_flight = 0
        self.batch = np.full(n, -1)
        self.group = np.full(n, -1)
        self.handed_ns = np.zeros(n, np.int64)
        self.finished_ns = np.zeros(n, np.int64)
        self.first_token = np.full(n, -1)
        self.parts = {part: np.zeros(n) for part in TTFT_PARTS}
        self.logits: dict[int, np.ndarray] = {}
        self.caches: dict[int, dict[int, Any]] = defaultdict(dict)
        self._flights: dict[int, tuple[Batch, int, int]] = {}
        self._spans: list[tuple[str, tuple]] = []
        self._busy: dict[str, tuple[int, int]] = {}  # device -> busy_ns at the start and now
        self._end_ns = 0

    # -------------------------------------------------------------- batches

    def handed(self, batch: Batch, group: int, sent_ns: int) -> None:
        self._flights[batch.id] = (batch, group, sent_ns)
        self.in_flight += 1
        for piece in batch.pieces:
            if piece.start == 0:
                self.handed_ns[piece.request] = sent_ns

    def done(self, report: dict[str, Any]) -> int:
        """Take in a finished batch; returns how many prompts have their first token now."""
        batch, group, sent_ns = self._flights.pop(report["batch"])
        self.in_flight -= 1
        self._end_ns = max(self._end_ns, report["finished_ns"])
        for piece in batch.pieces:
            r = piece.request
            self.batch[r], self.group[r] = batch.id, group
            for part, ns in report["parts_ns"].items():
                self.parts[part][r] += ns * 1e-9
            # a prompt in chunks waits between them: that too is waiting for a batch
            before = self._arrival_ns(r) if piece.start == 0 else self.finished_ns[r]
            self.parts["batching_wait"][r] += (sent_ns - before) * 1e-9
            self.finished_ns[r] = report["finished_ns"]
        asked = report["requests"]
        flat = np.frombuffer(report["logits"], report["logits_dtype"])
        rows = flat.reshape(len(asked), -1) if asked else flat
        for request, token, row in zip(report["requests"], report["first_tokens"], rows):
            self.first_token[request] = token
            if self.keep_logits:
                self.logits[request] = row
            ttft_s = (report["finished_ns"] - self._arrival_ns(request)) * 1e-9
            for listener in self.live.inbox.finished:
                listener(report["finished_ns"] * 1e-9, ttft_s, int(self.workload.tokens[request]))
        return len(report["requests"])

    def kv(self, report: dict[str, Any]) -> None:
        self.caches[report["request"]][report["rank"]] = report["layers"]

    def _arrival_ns(self, request: int) -> int:
        return self.start_ns + int(self.workload.arrival_s[request] * 1e9)

    # -------------------------------------------------------------- telemetry

    def listen(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._busy = {name: (m["busy_ns"], m["busy_ns"]) for name, m in inbox.latest.items()}
        inbox.listeners.append(self._telemetry)

    def unlisten(self, inbox: Inbox) -> None:
        if self._telemetry in inbox.listeners:
            inbox.listeners.remove(self._telemetry)

    def _telemetry(self, message: dict[str, Any]) -> None:
        device = message["device"]
        first, _ = self._busy.get(device, (message["busy_ns"], 0))
        self._busy[device] = (first, message["busy_ns"])
        self._spans.extend((device, span) for span in message["spans"])

    def settle(self, kv_ranks: int) -> None:
        """Wait until every device has sent a pulse that is younger than the last first token, and all asked caches."""
        until = time.monotonic() + SETTLE_S
        names = list(self._inbox.latest)
        counted: dict[str, int] = defaultdict(int)

        def count(message: dict[str, Any]) -> None:
            counted[message["device"]] += 1

        self._inbox.listeners.append(count)
        try:
            while any(counted[name] < 2 for name in names) or self._missing_caches(kv_ranks):
                if time.monotonic() > until:
                    late = [name for name in names if counted[name] < 2]
                    raise Stalled(f"waited {SETTLE_S:.0f} s for the last telemetry of {', '.join(late) or 'KV caches'}")
                self._take_caches()
        finally:
            self._inbox.listeners.remove(count)

    def _missing_caches(self, ranks: int) -> bool:
        return ranks > 0 and any(len(self.caches[r]) < ranks for r in range(len(self.workload)))

    def _take_caches(self) -> None:
        report = self._inbox.next(0.02)
        if report is not None and report["event"] == "kv":
            self.kv(report)

    # -------------------------------------------------------------- the result

    def run(self) -> Run:
        live, w = self.live, self.workload
        ttft = (self.finished_ns - self.start_ns) * 1e-9 - w.arrival_s
        requests = {
            "id": np.arange(len(w)),
            "arrival_s": np.asarray(w.arrival_s),
            "tokens": np.asarray(w.tokens),
            "batch": self.batch,
            "group": self.group,
            "ttft_s": ttft,
            "first_token": self.first_token,
            **self.parts,
        }
        return Run(
            system=live.system,
            instance=live.instance,
            mode=live.blueprint.mode,
            requests=requests,
            spans=self._columns(),
            utilization=self._utilization(),
            excluded=w.excluded,
            configuration={
                "model": str(live.blueprint.checkpoint.directory.name),
                "dtype": live.blueprint.dtype,
                "pace": live.blueprint.pace,
                "asked": {"D": live.blueprint.asked.D, "T": live.blueprint.asked.T, "E": live.blueprint.asked.E},
                "S": live.blueprint.dims.S,
                "devices": len(live.specs),
                "notes": list(live.blueprint.notes),
                "workload": w.name,
            },
            provenance=provenance(workload=w),
            logits=self.logits or None,
            kv=_join_kv(self.caches) if self.caches else None,
        )

    def _utilization(self) -> dict[str, float]:
        """Share of the run in which devices of a role computed (paced time included)."""
        wall = max(self._end_ns - self.start_ns, 1)
        by_role: dict[str, list[float]] = defaultdict(list)
        for spec in self.live.specs:
            first, last = self._busy.get(spec.name, (0, 0))
            by_role[spec.role].append(min(1.0, (last - first) / wall))
        return {role: float(np.mean(shares)) for role, shares in by_role.items()}

    def _columns(self) -> dict[str, np.ndarray]:
        zero = self.start_ns * 1e-9
        rows = [(device, *span) for device, span in self._spans if span[5] >= zero]
        columns: dict[str, np.ndarray] = {}
        for k, name in enumerate(Span._fields):
            values = [row[k] for row in rows]
            columns[name] = np.array(values, dtype=str if k < 3 else np.float64 if name.endswith("_s") else np.int64)
        columns["start_s"] = columns["start_s"] - zero
        columns["end_s"] = columns["end_s"] - zero
        return columns


def _join_kv(caches: dict[int, dict[int, Any]]) -> dict[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Per request and layer: keys and values of all heads, rank after rank."""
    joined = {}
    for request, ranks in caches.items():
        layers = []
        for parts in zip(*(ranks[rank] for rank in sorted(ranks))):
            keys = [np.frombuffer(p[0], _numpy(p[4])).reshape(p[1]) for p in parts]
            values = [np.frombuffer(p[2], _numpy(p[4])).reshape(p[3]) for p in parts]
            layers.append((np.concatenate(keys), np.concatenate(values)))
        joined[request] = layers
    return joined


def _numpy(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype  # numpy has no bfloat16: its bits
