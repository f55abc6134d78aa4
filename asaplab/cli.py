"""The ``asaplab`` command. Bad input ends with exit status 2 and one sentence on standard error."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import asaplab
from asaplab.errors import AsapError

# Each module adds its commands with ``add_parsers``; every command's ``run(args)`` returns a dict of plain values, and
# an optional ``show(result)`` prints them for people.
COMMANDS = (
    "asaplab.lab.commands_engine",
    "asaplab.lab.commands_twin",
    "asaplab.lab.commands_lab",
    "asaplab.lab.commands_bench",
)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="asaplab", description=(asaplab.__doc__ or "").splitlines()[0])
    top.add_argument("--version", action="version", version=f"asaplab {asaplab.__version__}")
    subparsers = top.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for module in COMMANDS:
        importlib.import_module(module).add_parsers(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = parser().parse_args(argv)
    try:
        result = args.run(args)
    except AsapError as error:
        print(f"asaplab: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("asaplab: interrupted; everything it had started was stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    if result is None:
        return 0
    status = result.pop("exit_status", 0)  # of a command that finished but found something amiss
    if getattr(args, "json", False):
        print(json.dumps(result, allow_nan=False))
    else:
        getattr(args, "show", _show)(result)
    return status


def _show(result: Any, indent: str = "") -> None:
    """Plain values as aligned lines."""
    if not isinstance(result, dict):
        print(f"{indent}{result}")
        return
    width = max((len(str(key)) for key in result), default=0)
    for key, value in result.items():
        if isinstance(value, dict) and value:
            print(f"{indent}{key}")
            _show(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            print(f"{indent}{key}")
            for entry in value:
                print(f"{indent}  " + "  ".join(f"{k}={_number(v)}" for k, v in entry.items()))
        else:
            print(f"{indent}{key!s:<{width}}  {_number(value)}")


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
