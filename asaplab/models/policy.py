"""The arithmetic of a forward pass: which precision each operation runs in (design: exactness).

A GEMM runs in ``dtype``; norms, softmax, router scores, rotary tables and sums over experts run in ``high``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from asaplab.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Policy:
    """``dtype`` holds activations and weights, ``high`` is used wherever the models ask for more than ``dtype``."""

    dtype: torch.dtype
    high: torch.dtype

    @property
    def name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


_POLICIES = {
    "float64": Policy(dtype=torch.float64, high=torch.float64),
    "float32": Policy(dtype=torch.float32, high=torch.float32),
    "bfloat16": Policy(dtype=torch.bfloat16, high=torch.float32),
}


def policy(name: str) -> Policy:
    """The policy called ``name``: "float64" (float64 everywhere), "float32" or "bfloat16" (float32 where it matters).

    Raises:
        InputError: there is no policy of that name.
    """
    if name not in _POLICIES:
        raise InputError(f"dtype {name!r} is not known; choose one of {', '.join(_POLICIES)}")
    return _POLICIES[name]
