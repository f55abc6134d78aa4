"""A run as a folder: ``run.json`` for what it was, ``requests.parquet`` and ``spans.parquet`` for what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from asaplab.core import Instance, Run
from asaplab.errors import InputError
from asaplab.observe.encoding import system_from_dict, to_plain
from asaplab.observe.spans import spans_of

_FORMAT = 1


def save(run: Run, folder: str | Path) -> Path:
    """Write the run into the folder (made if missing; an older run in it is replaced); returns the folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in (("requests", run.requests), ("spans", spans_of(run))):
        table = pa.table({key: pa.array(np.asarray(column)) for key, column in columns.items()})
        pq.write_table(table, folder / f"{name}.parquet")
    what = {
        "format": _FORMAT,
        "system": run.system,
        "instance": run.instance,
        "mode": run.mode,
        "utilization": run.utilization,
        "excluded": run.excluded,
        "configuration": run.configuration,
        "provenance": run.provenance,
    }
    (folder / "run.json").write_text(json.dumps(to_plain(what), indent=1) + "\n")
    return folder


def load(folder: str | Path) -> Run:
    """The run that ``save`` wrote.

    Raises:
        InputError: the folder holds no run, or one of a format that this version does not know.
    """
    folder = Path(folder)
    try:
        what = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        raise InputError(f"{folder} holds no run; give a folder that a run was saved to") from None
    if what.get("format") != _FORMAT:
        raise InputError(f"the run in {folder} has format {what.get('format')!r}; this version reads {_FORMAT}")
    return Run(
        system=system_from_dict(what["system"]),
        instance=Instance(**what["instance"]),
        mode=what["mode"],
        requests=_columns(folder / "requests.parquet"),
        spans=_columns(folder / "spans.parquet"),
        utilization=what["utilization"],
        excluded=what["excluded"],
        configuration=what["configuration"],
        provenance=what["provenance"],
    )


def _columns(path: Path) -> Mapping[str, np.ndarray]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        raise InputError(f"{path} is missing or damaged; save the run again") from None
    columns = {name: table[name].to_numpy() for name in table.column_names}
    return {name: c.astype(np.str_) if c.dtype == object else c for name, c in columns.items()}
