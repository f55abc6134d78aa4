"""Cost functions of one layer on one device: what attention and MoE take for a given batch (section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Service times in seconds for one layer on one device.

    Attention follows Figure 3a, ``c0 + c1 * tokens + c2 * sum(s_i^2)``; MoE follows Figure 3b, flat while the expert
    weights are being read and linear in rows once compute dominates. Rows are (token, expert) pairs on that device.
    """

    attention_fixed_s: float
    attention_token_s: float
    attention_square_s: float
    moe_floor_s: float
    moe_row_s: float

    def attention_s(self, tokens: float, sum_squares: float) -> float:
        if tokens <= 0:
            return 0.0
        return self.attention_fixed_s + self.attention_token_s * tokens + self.attention_square_s * sum_squares

    def moe_s(self, rows: float) -> float:
        return max(self.moe_floor_s, self.moe_row_s * rows) if rows > 0 else 0.0
