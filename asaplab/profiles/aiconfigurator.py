"""Measured kernel rows of the AIConfigurator project, read from its package when the extra is installed.

    pip install 'asaplab[aiconfigurator]'
    asaplab simulate --profile aiconfigurator-h200_sxm       any GPU that the package has such rows for
    python -m asaplab.profiles.aiconfigurator                writes the small tables that asaplab ships

The rows are of DeepSeek-V3 and V3.2: a layer's attention module in vLLM with the heads of one rank at T = 4, and the
experts' computation of SGLang at E = 16 with rows spread evenly. AIConfigurator is NVIDIA's, under Apache-2.0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from asaplab.errors import InputError

T, E = 4, 16  # of the rows
SHIPPED = Path(__file__).with_name("gpu_tables.json")
_LENGTHS = tuple(2**k for k in range(4, 16))  # 16 to 32,768 tokens
_V3, _V32 = "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Milliseconds of a layer. Keys are tokens: of one prompt for attention, of the whole instance for MoE."""

    device: str
    source: str
    attention_ms: dict[int, float]  # 128 / T heads
    moe_ms: dict[int, float]  # the experts of one of E devices
    sparse_ms: dict[int, dict[int, float]]  # V3.2's module by heads: the indexer is the same whatever they are


def shipped(name: str) -> Table:
    """The table of ``h100``, ``h200`` or ``b200`` as asaplab ships it."""
    read = json.loads(SHIPPED.read_text())[name]
    sparse = {int(heads): _numbers(row) for heads, row in read["sparse_ms"].items()}
    return Table(
        device=read["device"],
        source=read["source"],
        attention_ms=_numbers(read["attention_ms"]),
        moe_ms=_numbers(read["moe_ms"]),
        sparse_ms=sparse,
    )


def installed(system: str) -> Table:
    """The table of one of the package's systems (h200_sxm, gb200 ...), from its files.

    Raises:
        InputError: the package is not installed, or it has no such rows for the system.
    """
    folder = _systems() / "data" / system
    if not folder.is_dir():
        known = ", ".join(sorted(path.name for path in folder.parent.iterdir() if path.is_dir()))
        raise InputError(f"aiconfigurator has no system {system!r}; its systems are {known}")
    attention = _rows(folder, "mla/vllm", "mla_context_module_perf", batch_size=1, step=0, gemm_type="fp8_block")
    sparse = _rows(
        folder, "sparse_attention/vllm", "dsa_context_module_perf",
        batch_size=1, step=0, gemm_type="fp8_block", kv_cache_dtype="bfloat16", model=_V32,
    )  # fmt: skip
    experts = _rows(
        folder, "moe/sglang", "wideep_context_moe_perf",
        hidden_size=7168, inter_size=2048, num_experts=256, topk=8, moe_ep_size=E, distribution="uniform",
    )  # fmt: skip
    mine = [row for row in attention if row["model"] == _V3 and row["num_heads"] == 128 // T]
    if not mine or not experts:
        raise InputError(f"aiconfigurator has no rows of DeepSeek-V3 for {system!r}; h200_sxm has them")
    return Table(
        device=mine[0]["device"],
        source=f"aiconfigurator-core {version('aiconfigurator-core')}, {system}: mla_context_module (vLLM "
        f"{mine[0]['version']}), moe_context (SGLang {experts[0]['version']})",
        attention_ms=_fastest(mine, "isl", _LENGTHS),
        moe_ms=_fastest(experts, "num_tokens", _LENGTHS),
        sparse_ms={
            heads: _fastest([row for row in sparse if row["num_heads"] == heads], "isl", _LENGTHS)
            for heads in (128 // T, 128)
        },
    )


def peaks(system: str) -> dict[str, float]:
    """What the package's data sheet of a system says: fp8 and bf16 operations/s, HBM and link bytes/s, bytes."""
    import yaml

    _systems()
    read = yaml.safe_load((_systems() / f"{system}.yaml").read_text())
    gpu = read["gpu"]
    return {
        "fp8": gpu.get("fp8_tc_flops", gpu["bfloat16_tc_flops"]),
        "bf16": gpu["bfloat16_tc_flops"],
        "hbm": gpu["mem_bw"],
        "memory": gpu["mem_capacity"],
        "link": read["node"]["intra_node_bw"],
    }


def _systems() -> Path:
    """The package's data, found without importing it: reading files needs nothing of what it needs."""
    try:
        found = find_spec("aiconfigurator_core")
        version("aiconfigurator-core")
    except PackageNotFoundError:
        found = None
    if found is None or found.origin is None:
        raise InputError(
            "profiles 'aiconfigurator-...' need the package aiconfigurator-core; install asaplab[aiconfigurator], or "
            "use the shipped h100, h200 or b200"
        )
    return Path(found.origin).parent / "systems"


def _rows(folder: Path, framework: str, name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Rows of the newest version that has the file, with the wanted columns."""
    import pyarrow.parquet as parquet

    files = sorted((folder / framework).glob(f"*/{name}.parquet"), key=lambda path: _newer(path.parent.name))
    if not files:
        return []
    filters = [(column, "==", value) for column, value in wanted.items()]
    rows: list[dict[str, Any]] = parquet.read_table(files[-1], filters=filters).to_pylist()
    return rows


def _newer(version_name: str) -> list[int]:
    return [int(part) for part in version_name.replace("post", "").split(".") if part.isdigit()]


def _fastest(rows: list[dict[str, Any]], column: str, wanted: tuple[int, ...]) -> dict[int, float]:
    """By tokens, the fastest of the kernels that were measured there."""
    found: dict[int, float] = {}
    for row in rows:
        tokens = int(row[column])
        if tokens in wanted:
            found[tokens] = min(row["latency"], found.get(tokens, float("inf")))
    return {tokens: round(found[tokens], 4) for tokens in sorted(found)}


def _numbers(row: dict[str, float]) -> dict[int, float]:
    return {int(tokens): ms for tokens, ms in row.items()}


if __name__ == "__main__":
    tables = {name: vars(installed(f"{name}_sxm")) for name in ("h100", "h200", "b200")}
    notice = (
        "Rows of the AIConfigurator project (NVIDIA, Apache-2.0); made by python -m asaplab.profiles.aiconfigurator"
    )
    SHIPPED.write_text(json.dumps({"notice": notice} | tables, indent=1) + "\n")
    print(SHIPPED)
