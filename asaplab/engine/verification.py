"""Every request of a run against the uncut forward pass, the ground truth (design.md, section 4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from asaplab import models
from asaplab.core import Run, Workload
from asaplab.errors import InputError
from asaplab.models.checkpoint import Checkpoint
from asaplab.models.policy import policy
from asaplab.models.reference import Reference
from asaplab.workload import prompt

BARS = {"float64": 1e-10, "float32": 1e-4, "bfloat16": None}  # max|difference| / max|reference|


def verify(run: Run, workload: Workload, model: str) -> dict[str, Any]:
    """Prefill every prompt alone on the reference and compare logits and first tokens.

    In bfloat16 the first token counts, except where float32 shows a tie within bfloat16's resolution.

    Raises:
        InputError: the run kept no logits.
    """
    if run.logits is None:
        raise InputError("the run kept no logits to verify; prefill with keep_logits=True")
    dtype = run.configuration["dtype"]
    checkpoint = Checkpoint(models.resolve(model))
    reference = Reference(checkpoint, policy(dtype))
    worst, wrong = 0.0, []
    with torch.inference_mode():
        for i in range(len(workload)):
            ids = torch.from_numpy(prompt(workload, i, checkpoint.config.vocab))
            truth = reference.prefill([ids])[0]
            expected = truth.logits_V.double().numpy()
            found = np.asarray(run.logits[i], np.float64)
            worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
            token = int(run.requests["first_token"][i])
            tie = dtype == "bfloat16" and expected.max() - expected[token] <= 2**-7 * abs(expected.max())
            if token != int(truth.first_token) and not tie:
                wrong.append(i)
    bar = BARS[dtype]
    return {
        "requests": len(workload),
        "max_relative_difference": worst,
        "bar": bar,
        "wrong_first_tokens": wrong,
        "passed": not wrong and (bar is None or worst <= bar),
    }
