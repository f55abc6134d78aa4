"""``h200``, ``h100`` and ``b200``: public data sheets, with efficiencies read off measured kernel tables.

The tables are op latencies of DeepSeek-V3 on H200 by the AIConfigurator project (Apache-2.0), quoted for T = 4 and
E = 16. Only h200 has a table behind it: the others take its efficiencies (assumed) with their own peaks.
"""

from __future__ import annotations

import numpy as np

from asaplab.profiles.profile import Basis, Profile, Quantity
from asaplab.profiles.shapes import MODELS

# aiconfigurator-core 0.12.0, h200_sxm: ms a layer. Attention: vLLM MLA, TP4, one prompt of that many tokens.
H200_ATTENTION_MS = {1024: 0.30, 2048: 0.55, 4096: 1.04, 8192: 2.42, 16384: 6.09, 32768: 18.5}
# MoEExpertCompute, EP16, balanced, tokens over all devices
H200_MOE_MS = {128: 0.375, 1024: 0.381, 2048: 0.380, 4096: 0.476, 8192: 0.583, 16384: 0.865, 32768: 1.49}
_V3 = MODELS["deepseek-v3"]
_PEAKS = {  # dense fp8, dense bf16 (operations/s), HBM bytes/s, bytes, link bytes/s one way
    "h100": (1979e12, 989e12, 3.35e12, 80e9, 450e9),
    "h200": (1979e12, 989e12, 4.8e12, 141e9, 450e9),
    "b200": (4500e12, 2250e12, 8.0e12, 180e9, 900e9),
}


def _fit_attention() -> tuple[float, float, float]:
    """Constant, linear and quadratic coefficient (s) that fit the table, in relative error and none negative."""
    from scipy.optimize import nnls

    s = np.array(list(H200_ATTENTION_MS), float)
    t = np.array(list(H200_ATTENTION_MS.values())) * 1e-3
    rows = np.stack([np.ones_like(s), s, s * s], 1) / t[:, None]
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale, np.ones_like(s))
    fixed_s, token_s, square_s = found / scale
    return float(fixed_s), float(token_s), float(square_s)


def gpu(name: str) -> Profile:
    """The profile of one of the three GPUs."""
    fp8, bf16, hbm, memory, link = _PEAKS[name]
    h200_fp8, h200_bf16, h200_hbm, *_ = _PEAKS["h200"]
    fixed_s, token_s, square_s = _fit_attention()
    token_efficiency = _V3.attention_token / 4 / token_s / h200_fp8
    square_efficiency = _V3.attention_square / 4 / square_s / h200_bf16
    floor_s, most = H200_MOE_MS[2048] * 1e-3, 32768
    row_s = (H200_MOE_MS[most] - H200_MOE_MS[16384]) * 1e-3 / ((most - 16384) * _V3.K / 16)
    moe_efficiency = _V3.expert_row / row_s / h200_fp8
    hbm_efficiency = _V3.E_total / 16 * _V3.expert_weights / floor_s / h200_hbm
    measured: Basis = "measured" if name == "h200" else "assumed"
    table = "AIConfigurator table for h200_sxm" + ("" if name == "h200" else ", assumed to carry over")

    def q(value: float, basis: Basis, source: str) -> Quantity:
        return Quantity(value=value, basis=basis, source=source)

    return Profile(
        name=name,
        dense_rate=q(fp8, "public", "data sheet, dense fp8"),
        attention_rate=q(bf16, "public", "data sheet, dense bf16"),
        hbm=q(hbm, "public", "data sheet"),
        memory=q(memory, "public", "data sheet"),
        link=q(link, "public", "data sheet, NVLink one way; beyond one NVLink domain it is slower"),
        weight_bytes=q(1.0, "public", "fp8 weights as released"),
        dispatch_bytes=q(1.0, "assumed", "fp8 activations on the way out"),
        combine_bytes=q(2.0, "assumed", "16-bit results on the way back"),
        attention_fixed_s=q(fixed_s, measured, table),
        token_efficiency=q(min(1.0, token_efficiency), measured, table),
        square_efficiency=q(min(1.0, square_efficiency), measured, table),
        moe_efficiency=q(min(1.0, moe_efficiency), measured, table),
        hbm_efficiency=q(min(1.0, hbm_efficiency), measured, table),
        latency_s=q(10e-6, "assumed", "one-sided put and flag"),
        handshake_s=q(20e-6, "assumed", "rendezvous of one send"),
        collective_s=q(118e-6, "public", "DeepEP low-latency dispatch over 16 devices"),
        host_s=q(2e-3, "assumed", "scheduling, embedding, LM head of a batch"),
        contention=q(1.1, "assumed", "attention while communication shares its device"),
    )
