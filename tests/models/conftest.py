"""Checkpoints that the tests of this folder share, and one thread, on which equality of bits is promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from asaplab.models import tiny
from tests.models.variants import VARIANTS


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every variant's checkpoint directory."""
    directories = {}
    for name, raw in VARIANTS.items():
        directories[name] = tmp_path_factory.mktemp(name)
        tiny.write_config(raw, directories[name])
    return directories
