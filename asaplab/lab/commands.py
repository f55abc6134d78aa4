"""What every asaplab command shares."""

from __future__ import annotations

import argparse
from pathlib import Path


def common(parser: argparse.ArgumentParser) -> None:
    """Add the flags that mean the same everywhere: --seed, --repeats, --out, --json."""
    parser.add_argument("--seed", type=int, default=0, help="root of every random stream (default 0)")
    parser.add_argument("--repeats", type=int, default=1, help="how often to repeat, with seeds seed, seed+1, ...")
    parser.add_argument("--out", type=Path, default=None, help="folder for what the command writes")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
