"""Public traces in and out: scaled, limited, spread over coarse ticks, prompts beyond S left out."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.workload.exclusion import note
from asaplab.workload.formats import FORMATS, BadLine, Rows, detect
from asaplab.workload.streams import stream


def read_trace(
    path: str | Path,
    *,
    format: str = "auto",
    limit: int | None = None,
    length_scale: float = 1.0,
    time_scale: float = 1.0,
    max_batch_tokens: int = 32768,
    strict: bool = False,
    spread: bool = False,
    seed: int = 0,
) -> Workload:
    """The requests of a trace file, first arrival at 0.

    The first ``limit`` requests are taken; lengths become ``max(1, round(length_scale * tokens))`` and prefix blocks
    shrink alike; arrival times are multiplied by ``time_scale``. ``spread`` distributes requests that share a coarse
    time stamp uniformly over that tick. Prompts then longer than ``max_batch_tokens`` (S) are left out and counted.

    Raises:
        InputError: no such file, an unknown format, a malformed line (with its number), an option out of range, no
            request left, or a prompt beyond S when ``strict``.
    """
    _check(limit, length_scale, time_scale, max_batch_tokens)
    path = Path(path)
    text, checksum = _read(path)
    try:
        name = detect(text.split("\n", 1)[0]) if format == "auto" else format
        if name not in FORMATS:
            raise InputError(f"there is no trace format {format!r}; the formats are {', '.join(FORMATS)}")
        rows = FORMATS[name].parse(_lines(text), limit)
    except BadLine as bad:
        raise InputError(f"trace {path.name}, {bad}") from None
    except InputError as unknown:
        raise InputError(f"trace {path.name}: {unknown}") from None
    if not rows.times:
        raise InputError(f"trace {path.name} holds no request; give a file with at least one")

    order, arrival_s = _in_order(rows, spread, seed)
    tokens = np.maximum(1, np.rint(np.asarray(rows.tokens, np.float64)[order] * length_scale)).astype(np.int64)
    kept = tokens <= max_batch_tokens
    excluded = int((~kept).sum())
    source = {"file": path.name, "sha256": checksum, "format": name, "limit": limit, "length_scale": length_scale}
    source |= {"time_scale": time_scale, "spread": spread, "failed_in_trace": rows.skipped}
    source |= note(f"trace {path.name}", excluded, max_batch_tokens, strict=strict)
    if not kept.any():
        raise InputError(f"every prompt of trace {path.name} is longer than S = {max_batch_tokens} tokens; raise S")
    block = FORMATS[name].block_tokens * length_scale
    return Workload(
        arrival_s=arrival_s[kept] * time_scale,
        tokens=tokens[kept],
        name=path.stem,
        seed=seed,
        source=source,
        excluded=excluded,
        block_tokens=int(block) if block == int(block) else block,
        hash_ids=tuple(rows.hash_ids[i] for i in order[kept]) if rows.hash_ids else None,
    )


def _check(limit: int | None, length_scale: float, time_scale: float, most: int) -> None:
    if limit is not None and limit < 1:
        raise InputError(f"limit is {limit}; it must be at least 1")
    for what, scale in (("length_scale", length_scale), ("time_scale", time_scale)):
        if not (scale > 0 and np.isfinite(scale)):
            raise InputError(f"{what} is {scale}; it must be a finite number above 0")
    if most < 1:
        raise InputError(f"max_batch_tokens is {most}; it must be at least 1")


def _read(path: Path) -> tuple[str, str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"trace {path} cannot be read: {error.strerror}; give the path of a trace file") from None
    try:
        return content.decode("utf-8-sig"), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError:
        raise InputError(f"trace {path.name} is not a text file; decompress it first") from None


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends (LF or CR LF); blank ones are skipped."""
    lines = io.StringIO(text, newline=None)  # str.splitlines would also break at separators inside JSON strings
    return ((number, line.rstrip("\n")) for number, line in enumerate(lines, 1) if line.strip())


def _in_order(rows: Rows, spread: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    times = np.asarray(rows.times, np.float64)
    times = times - times.min()
    if spread:
        times = _spread(times, seed)
    order = np.argsort(times, kind="stable")
    return order, times[order]


def _spread(times: np.ndarray, seed: int) -> np.ndarray:
    """Requests with a shared time stamp move into the tick that follows it, at most up to the next time stamp."""
    ticks, tick_of, shared_by = np.unique(times, return_inverse=True, return_counts=True)
    if len(ticks) < 2:
        return times
    gaps = np.diff(ticks)
    width = np.minimum(np.append(gaps, gaps.max()), np.median(gaps))
    jitter = stream(seed, "spread").random(len(times)) * width[tick_of]
    return np.where(shared_by[tick_of] > 1, times + jitter, times)


def write_trace(workload: Workload, path: str | Path, format: str) -> None:
    """Write a workload in a public format that ``read_trace`` reads back; answers count as 1 token.

    Mooncake keeps whole milliseconds, Azure steps of 100 ns, the others the full time.

    Raises:
        InputError: an unknown format, or prefix blocks of another size than the format's.
    """
    if format not in FORMATS:
        raise InputError(f"there is no trace format {format!r}; the formats are {', '.join(FORMATS)}")
    if workload.hash_ids is not None and format in ("mooncake", "bailian"):
        block = FORMATS[format].block_tokens
        if workload.block_tokens != block:
            raise InputError(
                f"workload {workload.name!r} has blocks of {workload.block_tokens:g} tokens, but {format} blocks hold "
                f"{block}; write it in another format"
            )
    Path(path).write_bytes(_WRITERS[format](workload).encode())


def _json_lines(workload: Workload, seconds_to_stamp, extra: dict[str, int]) -> str:
    lines = []
    for request in workload:
        row = {"timestamp": seconds_to_stamp(request.arrival_s), "input_length": request.tokens, "output_length": 1}
        if workload.hash_ids is not None:
            row["hash_ids"] = list(workload.hash_ids[request.id])
        lines.append(json.dumps(({"chat_id": request.id} | extra if extra else {}) | row))
    return "".join(line + "\n" for line in lines)


def _azure_csv(workload: Workload) -> str:
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    start = np.datetime64("2023-11-16T00:00:00", "ns")
    steps = np.rint(workload.arrival_s * 1e7).astype(np.int64) * 100
    for stamp, tokens in zip(np.datetime_as_string(start + steps.astype("m8[ns]")), workload.tokens):
        lines.append(f"{stamp[:-2].replace('T', ' ')},{tokens},1")
    return "\r\n".join(lines)


def _burstgpt_csv(workload: Workload) -> str:
    lines = ["Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"]
    lines += [f"{r.arrival_s!r},asaplab,{r.tokens},1,{r.tokens + 1},Conversation log" for r in workload]
    return "".join(line + "\n" for line in lines)


_WRITERS = {
    "mooncake": lambda w: _json_lines(w, lambda s: round(s * 1000), {}),
    "bailian": lambda w: _json_lines(w, float, {"parent_chat_id": -1}),
    "azure": _azure_csv,
    "burstgpt": _burstgpt_csv,
}
