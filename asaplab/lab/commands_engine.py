"""Commands of the real engine: ``prefill`` and ``checkpoint``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asaplab.errors import InputError
from asaplab.lab.commands import common
from asaplab.lab.workloads import workload_flags, workload_of


def add_parsers(subparsers: Any) -> None:
    prefill = subparsers.add_parser("prefill", help="prefill a workload on real device processes")
    prefill.add_argument("--model", default="tiny-deepseek-v3", help="checkpoint directory, or an embedded one's name")
    prefill.add_argument("--system", default="asap", help="a named system (default asap)")
    prefill.add_argument("--attention", default="2x1", metavar="DxT", help="DP groups x TP ranks (default 2x1)")
    prefill.add_argument("--experts", type=int, default=2, metavar="E", help="MoE devices (default 2)")
    prefill.add_argument("--tp", type=int, help="TP degree of a colocated system")
    prefill.add_argument("--dtype", default="float32", help="float32, float64 or bfloat16 (default float32)")
    prefill.add_argument("--mode", choices=("paced", "shared"), help="paced where devices outnumber the cores")
    prefill.add_argument("--text", action="append", help="a text prompt; needs a tokenizer.json; may be repeated")
    prefill.add_argument("--verify", action="store_true", help="compare every request with the uncut forward pass")
    workload_flags(prefill, S=32768, duration_s=10.0)
    common(prefill)
    prefill.set_defaults(run=run_prefill)
    checkpoint = subparsers.add_parser("checkpoint", help="write an embedded checkpoint in Hugging Face format")
    checkpoint.add_argument("name", help="tiny-deepseek-v3, tiny-qwen3-moe or bench-moe")
    checkpoint.add_argument("directory", type=Path)
    checkpoint.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    checkpoint.set_defaults(run=run_checkpoint)


def parse_attention(text: str) -> tuple[int, int]:
    """ "DxT" as two numbers.

    Raises:
        InputError: it does not look like that.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise InputError(f"--attention is {text!r}; write it as DxT, for example 2x1")
    return int(match[1]), int(match[2])


def run_prefill(args: argparse.Namespace) -> dict[str, Any]:
    """Deploy, prefill the workload (--repeats times) and summarise; saves runs under --out."""
    from asaplab import observe
    from asaplab.engine import deploy
    from asaplab.engine.verification import verify

    if args.repeats < 1:
        raise InputError(f"--repeats is {args.repeats}; it must be at least 1")
    workload = _texts(args) if args.text else workload_of(args)
    results = []
    with deploy(
        args.model,
        attention=parse_attention(args.attention),
        experts=args.experts,
        system=args.system,
        mode=args.mode,
        dtype=args.dtype,
        tp=args.tp,
        max_batch_tokens=args.max_batch_tokens,
    ) as instance:
        for note in instance.blueprint.notes:
            print(f"asaplab: {note}", file=sys.stderr)
        for repeat in range(args.repeats):
            run = instance.prefill(workload, keep_logits=args.verify)
            result = observe.metrics(run)
            result["instance"] = {"D": run.instance.D, "T": run.instance.T, "E": run.instance.E}
            if args.verify:
                result["verify"] = verify(run, workload, args.model)
            if args.text:
                result["first_tokens"] = run.requests["first_token"].tolist()
            if args.out is not None:
                observe.save(run, args.out if args.repeats == 1 else args.out / f"repeat-{repeat}")
            results.append(result)
    return results[0] if args.repeats == 1 else _over_repeats(results)


def _over_repeats(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The first result with means over the repeats, and each repeat beside it."""
    means = {key: float(np.mean([r[key] for r in results])) for key in ("mean_ttft_s", "p99_ttft_s", "tokens_per_s")}
    return {**results[0], **means, "repeats": results}


def _texts(args: argparse.Namespace) -> Any:
    from asaplab import models
    from asaplab.core import Workload

    directory = models.resolve(args.model)
    ids = tuple(np.asarray(models.tokenize(directory, text), np.int64) for text in args.text)
    lengths = np.array([len(i) for i in ids])
    return Workload(arrival_s=np.zeros(len(ids)), tokens=lengths, name="text", seed=args.seed, token_ids=ids)


def run_checkpoint(args: argparse.Namespace) -> dict[str, Any]:
    from asaplab import models

    models.tiny.write(args.name, args.directory)
    files = sorted(path.name for path in args.directory.iterdir())
    size = sum(path.stat().st_size for path in args.directory.iterdir())
    return {"model": args.name, "directory": str(args.directory), "files": files, "bytes": size}
