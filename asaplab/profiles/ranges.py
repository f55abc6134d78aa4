"""Where a profile was measured: what a run asks beyond it is extrapolated, and the run says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The model, the instance and the sizes behind a profile's measured numbers; ends of ranges are included."""

    model: str
    T: int
    prompt_tokens: tuple[float, float]  # of one prompt, for attention
    expert_rows: tuple[float, float]  # of one expert in one kernel, on average

    def outside(
        self, *, model: str, T: int, prompt_tokens: tuple[float, float], expert_rows: tuple[float, float]
    ) -> list[str]:
        """What lies beyond, one sentence each; empty where everything was measured."""
        found = []
        if model != self.model:
            found.append(f"model: {model} is priced from measurements of {self.model}")
        if self.T != T:
            found.append(f"T: {T}, attention was measured at T = {self.T}")
        for what, (low, high), (least, most) in (
            ("prompt tokens", prompt_tokens, self.prompt_tokens),
            ("rows an expert", expert_rows, self.expert_rows),
        ):
            if low < least or high > most:
                found.append(f"{what}: {low:,.6g} to {high:,.6g}, measured were {least:,.6g} to {most:,.6g}")
        return found
