"""Public trace formats, line by line: the unit of time and the block size are facts of a format, never guesses.

========== ========== ============================== ======= ==========================================
name       file       time                           block   source
========== ========== ============================== ======= ==========================================
mooncake   JSON lines whole milliseconds             512     kvcache-ai/Mooncake, FAST'25 release
bailian    JSON lines seconds, with a fraction       16      alibaba-edu/qwen-bailian-usagetraces-anon
azure      CSV        date and time, 6 or 7 digits   -       Azure/AzurePublicDataset, LLM 2023 and 2024
burstgpt   CSV        seconds                        -       HPMLL/BurstGPT
========== ========== ============================== ======= ==========================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from asaplab.errors import InputError

Lines: TypeAlias = Iterable[tuple[int, str]]  # line number, text


@dataclass
class Rows:
    """What a trace says, row by row. Times are seconds on the trace's own clock, lengths are tokens."""

    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    hash_ids: list[tuple[int, ...]] = field(default_factory=list)  # empty where the format has none
    skipped: int = 0  # requests that the trace itself marks as failed


@dataclass(frozen=True, kw_only=True)
class Format:
    """How to read one format: ``parse(lines, limit)`` takes at most ``limit`` requests."""

    parse: Callable[[Iterator[tuple[int, str]], int | None], Rows]
    block_tokens: int = 512


class BadLine(Exception):
    """A line breaks its format; the reader adds the file's name."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


def _whole(value: Any, what: str, number: int) -> int:
    if type(value) is not int or abs(value) >= 1 << 63:
        raise BadLine(number, f"{what} is {value!r:.40}, not a whole number of at most 64 bits")
    return value


def _json_rows(lines: Lines, limit: int | None, block: int, seconds: Callable[[Any, int], float]) -> Rows:
    rows = Rows()
    for number, line in lines:
        if limit is not None and len(rows.times) == limit:
            break
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise BadLine(number, "not valid JSON") from None
        if not isinstance(row, dict) or not {"timestamp", "input_length"} <= row.keys():
            raise BadLine(number, "not an object with timestamp and input_length")
        tokens = _whole(row["input_length"], "input_length", number)
        if tokens < 1:
            raise BadLine(number, f"input_length is {tokens}; a prompt has at least 1 token")
        rows.times.append(seconds(row["timestamp"], number))
        rows.tokens.append(tokens)
        if "hash_ids" in row:
            rows.hash_ids.append(_hashes(row["hash_ids"], tokens, block, number))
        if rows.hash_ids and len(rows.hash_ids) != len(rows.times):
            raise BadLine(number, "hash_ids are on some lines only; give them on all lines or on none")
    return rows


def _hashes(hashes: Any, tokens: int, block: int, number: int) -> tuple[int, ...]:
    if not isinstance(hashes, list):
        raise BadLine(number, "hash_ids is not a list")
    blocks = -(-tokens // block)
    if len(hashes) != blocks:
        raise BadLine(
            number,
            f"{len(hashes)} hash_ids for {tokens} tokens, but blocks of {block} tokens make {blocks}; "
            "name the format if it is another one",
        )
    return tuple(_whole(h, "a hash id", number) for h in hashes)


def _milliseconds(value: Any, number: int) -> float:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise BadLine(number, f"timestamp is {value!r:.40}; Mooncake counts whole milliseconds, Bailian seconds")
    return _whole(value, "timestamp", number) / 1000.0


def _seconds(value: Any, number: int) -> float:
    if type(value) is int:
        value = float(_whole(value, "timestamp", number))
    if type(value) is not float or not np.isfinite(value):
        raise BadLine(number, f"timestamp is {value!r:.40}, not a number of seconds")
    return value


def _csv_rows(lines: Iterator[tuple[int, str]], wanted: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The wanted columns of each line, found by the header's names."""
    header_at, header = next(lines, (1, ""))
    names = [name.strip().strip('"') for name in header.split(",")]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise BadLine(header_at, f"the header has no column {missing[0]!r}; it is {header.strip()!r:.160}")
    at, width = [names.index(name) for name in wanted], len(names)
    for number, line in lines:
        cells = line.split(",")
        if len(cells) != width:
            raise BadLine(number, f"{len(cells)} columns where the header has {width}")
        yield number, tuple(cells[i] for i in at)


def _count(cell: str, what: str, number: int, least: int) -> int:
    try:
        count = int(cell)
    except ValueError:
        raise BadLine(number, f"{what} is {cell!r:.40}, not a whole number") from None
    if count < least:
        raise BadLine(number, f"{what} is {count}; it must be at least {least}")
    return _whole(count, what, number)


def _azure(lines: Iterator[tuple[int, str]], limit: int | None) -> Rows:
    """Time stamps keep all their digits: 2023 has 100 ns steps and no zone, 2024 has microseconds and +00:00."""
    rows = Rows()
    stamps: list[str] = []
    numbers: list[int] = []
    for number, (stamp, tokens) in _csv_rows(lines, ("TIMESTAMP", "ContextTokens")):
        if limit is not None and len(stamps) == limit:
            break
        stamps.append(stamp.removesuffix("+00:00"))
        rows.tokens.append(_count(tokens, "ContextTokens", number, least=1))
        numbers.append(number)
    try:
        times = np.array(stamps, "M8[ns]")
    except ValueError:
        times = np.array([_instant(stamp, number) for stamp, number in zip(stamps, numbers)], "M8[ns]")
    if np.isnat(times).any():
        raise BadLine(numbers[int(np.isnat(times).argmax())], "TIMESTAMP is empty")
    if len(times):
        rows.times = ((times - times[0]).astype(np.int64) / 1e9).tolist()
    return rows


def _instant(stamp: str, number: int) -> np.datetime64:
    try:
        return np.datetime64(stamp, "ns")
    except ValueError:
        raise BadLine(number, f"TIMESTAMP is {stamp!r:.40}, not like 2023-11-16 18:17:03.9799600") from None


def _burstgpt(lines: Iterator[tuple[int, str]], limit: int | None) -> Rows:
    """A request without response tokens failed; it is left out and counted."""
    rows = Rows()
    for number, (stamp, tokens, response) in _csv_rows(lines, ("Timestamp", "Request tokens", "Response tokens")):
        if limit is not None and len(rows.times) == limit:
            break
        prompt = _count(tokens, "Request tokens", number, least=0)
        if _count(response, "Response tokens", number, least=0) == 0 or prompt == 0:
            rows.skipped += 1
            continue
        try:
            rows.times.append(_seconds(float(stamp), number))
        except ValueError:
            raise BadLine(number, f"Timestamp is {stamp!r:.40}, not a number of seconds") from None
        rows.tokens.append(prompt)
    return rows


FORMATS: dict[str, Format] = {
    "mooncake": Format(parse=lambda lines, limit: _json_rows(lines, limit, 512, _milliseconds)),
    "bailian": Format(parse=lambda lines, limit: _json_rows(lines, limit, 16, _seconds), block_tokens=16),
    "azure": Format(parse=_azure),
    "burstgpt": Format(parse=_burstgpt),
}


def detect(first_line: str) -> str:
    """The format of a trace by its first line.

    Raises:
        InputError: no known format starts like this.
    """
    if first_line.lstrip().startswith("{"):
        return "bailian" if '"parent_chat_id"' in first_line or '"chat_id"' in first_line else "mooncake"
    names = {name.strip().strip('"') for name in first_line.split(",")}
    if {"TIMESTAMP", "ContextTokens"} <= names:
        return "azure"
    if {"Timestamp", "Request tokens", "Response tokens"} <= names:
        return "burstgpt"
    raise InputError(
        f"line 1: no known trace starts like this: {first_line.strip()[:60]!r}; the formats are {', '.join(FORMATS)}"
    )
