"""Which costs of a run lie outside what its profile was measured on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from asaplab.twin.setting import Setting


def extrapolated(setting: Setting, requests: Mapping[str, np.ndarray]) -> list[str]:
    """One sentence for each range that the run left; empty if it left none, or if nothing in the profile was measured.

    Rows an expert are means over a device's experts. A barrier joins the batches of all D groups in one kernel, so
    its largest count is at most D times a batch's.
    """
    measured = setting.profile.measured
    ran = requests["batch"] >= 0
    if measured is None or not ran.any():
        return []
    tokens, batch = requests["tokens"][ran].astype(float), requests["batch"][ran]
    sizes = np.bincount(np.unique(batch, return_inverse=True)[1], tokens)
    groups = setting.instance.D if setting.system.pipeline.barrier else 1
    rows = setting.model.K / setting.model.E_total * setting.instance.E * setting.shares_LE
    return measured.outside(
        model=setting.model.name,
        T=setting.instance.T,
        prompt_tokens=(float(tokens.min()), float(tokens.max())),
        expert_rows=(float(sizes.min() * rows.min()), float(sizes.max() * rows.max() * groups)),
    )
