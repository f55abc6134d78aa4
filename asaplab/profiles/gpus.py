"""``h200``, ``h100`` and ``b200``: public data sheets, with efficiencies read off measured kernel tables.

The tables are rows of AIConfigurator (Apache-2.0) for DeepSeek-V3 at T = 4 and E = 16; ``aiconfigurator-NAME`` reads
the same rows of any of its systems from the package itself.
"""

from __future__ import annotations

import numpy as np

from asaplab.profiles.aiconfigurator import E, T, Table, installed, peaks, shipped
from asaplab.profiles.profile import Basis, Profile, Quantity
from asaplab.profiles.ranges import Measured
from asaplab.profiles.shapes import MODELS

_V3 = MODELS["deepseek-v3"]
_PEAKS = {  # dense operations/s, HBM bytes/s, bytes, link bytes/s one way
    "h100": {"fp8": 1979e12, "bf16": 989e12, "hbm": 3.35e12, "memory": 80e9, "link": 450e9},
    "h200": {"fp8": 1979e12, "bf16": 989e12, "hbm": 4.8e12, "memory": 141e9, "link": 450e9},
    "b200": {"fp8": 4500e12, "bf16": 2250e12, "hbm": 8.0e12, "memory": 180e9, "link": 900e9},
}
_FLAT, _STEEP = 2048, (16384, 32768)  # tokens: where the experts' time is the floor's, and where it is the rows'


def gpu(name: str) -> Profile:
    """The profile of one of the three GPUs, from the shipped table."""
    return _profile(name, shipped(name), _PEAKS[name], "data sheet")


def from_package(system: str) -> Profile:
    """The profile of one of AIConfigurator's systems, from the installed package.

    Raises:
        InputError: the package is not installed, or it has no such rows for the system.
    """
    return _profile(f"aiconfigurator-{system}", installed(system), peaks(system), "AIConfigurator's data sheet")


def attention_fit(table: Table) -> tuple[float, float, float, float]:
    """Constant, linear and quadratic coefficient (s), none negative, and the worst miss as a share of the time."""
    from scipy.optimize import nnls

    s = np.array(list(table.attention_ms), float)
    t = np.array(list(table.attention_ms.values())) * 1e-3
    rows = np.stack([np.ones_like(s), s, s * s], 1) / t[:, None]
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale, np.ones_like(s))
    fixed_s, token_s, square_s = found / scale
    return float(fixed_s), float(token_s), float(square_s), float(np.abs(rows / scale @ found - 1).max())


def _profile(name: str, table: Table, peak: dict[str, float], sheet: str) -> Profile:
    fixed_s, token_s, square_s, miss = attention_fit(table)
    projections = 2.0 * (_V3.attention_weights - _V3.H * _V3.E_total)  # the module has neither router nor shared expert
    low, high = _STEEP
    row_s = (table.moe_ms[high] - table.moe_ms[low]) * 1e-3 / ((high - low) * _V3.K / E)
    read = _V3.E_total / E * _V3.expert_weights / (table.moe_ms[_FLAT] * 1e-3)
    attention = f"{table.source}; a constant, linear and quadratic term miss the rows by at most {miss:.0%}"

    def q(value: float, basis: Basis, source: str) -> Quantity:
        return Quantity(value=value, basis=basis, source=source)

    def share(value: float, source: str) -> Quantity:
        return q(min(1.0, value), "measured", source)

    return Profile(
        name=name,
        measured=Measured(
            model=_V3.name,
            T=T,
            prompt_tokens=(min(table.attention_ms), max(table.attention_ms)),
            expert_rows=(min(table.moe_ms) * _V3.K / _V3.E_total, max(table.moe_ms) * _V3.K / _V3.E_total),
        ),
        dense_rate=q(peak["fp8"], "public", f"{sheet}, dense fp8"),
        attention_rate=q(peak["bf16"], "public", f"{sheet}, dense bf16"),
        hbm=q(peak["hbm"], "public", sheet),
        memory=q(peak["memory"], "public", sheet),
        link=q(peak["link"], "public", f"{sheet}, NVLink one way; beyond one NVLink domain it is slower"),
        weight_bytes=q(1.0, "public", "fp8 weights as released"),
        dispatch_bytes=q(1.0, "assumed", "fp8 activations on the way out"),
        combine_bytes=q(2.0, "assumed", "16-bit results on the way back"),
        attention_fixed_s=q(fixed_s, "measured", attention),
        token_efficiency=share(projections / T / token_s / peak["fp8"], attention),
        square_efficiency=share(_V3.attention_square / T / square_s / peak["bf16"], attention),
        moe_efficiency=share(_V3.expert_row / row_s / peak["fp8"], f"{table.source}; from {low} to {high} tokens"),
        hbm_efficiency=share(read / peak["hbm"], f"{table.source}; at {_FLAT} tokens"),
        latency_s=q(10e-6, "assumed", "one-sided put and flag"),
        handshake_s=q(20e-6, "assumed", "rendezvous of one send"),
        collective_s=q(118e-6, "public", "DeepEP low-latency dispatch over 16 devices"),
        host_s=q(2e-3, "assumed", "scheduling, embedding, LM head of a batch"),
        contention=q(1.1, "assumed", "attention while communication shares its device"),
    )
