"""Plans against a plain loop over tokens and experts, and ids that would be written beyond the plan's ends."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asaplab.core import expert_shares
from asaplab.errors import InputError
from asaplab.primitives.layout import Dims
from asaplab.primitives.plan import Planner


def dims(**change):
    return Dims(**{"D": 1, "T": 1, "E": 3, "E_total": 7, "K": 2, "H": 8, "S": 16} | change)


@given(
    E=st.integers(1, 4), more=st.integers(0, 5), K=st.integers(1, 4), n=st.integers(0, 9), whole=st.booleans(),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_a_plan_is_what_a_loop_over_tokens_and_experts_finds(E, more, K, n, whole, seed):
    E_total = max(E + more, K)
    d = dims(E=E, E_total=E_total, K=K, copies=K if whole else 1)
    ids = torch.rand(n, E_total, generator=torch.Generator().manual_seed(seed)).argsort(1)[:, :K]
    plan, pairs = Planner(d)(ids), []
    first_row = first_pair = 0
    for e, share in enumerate(expert_shares(E_total, E)):
        mine = [(t, k) for g in share for t in range(n) for k in range(K) if ids[t, k] == g]
        pairs += [t * K + k for t, k in mine]
        rows = plan.rows_r[first_row : plan.row_ends_E[e]].tolist()
        index = plan.index_p[first_pair : plan.pair_ends_E[e]].tolist()
        assert [rows[r] for r in index] == [t for t, _ in mine]  # every pair finds its token
        assert len(rows) == (len(mine) if whole else len({t for t, _ in mine}))
        first_row, first_pair = plan.row_ends_E[e], plan.pair_ends_E[e]
    assert plan.order_p.tolist() == pairs
    assert plan.counts_E.tolist() == [int((ids == g).sum()) for g in range(E_total)]


@pytest.mark.parametrize("wrong", [7, -1, 1 << 40])
def test_an_id_that_names_no_expert_is_refused(wrong):
    with pytest.raises(InputError, match=rf"expert id {wrong} names no expert; ids go from 0 to 6"):
        Planner(dims())(torch.tensor([[0, 1], [wrong, 2]]))


def test_an_expert_chosen_twice_by_one_token_is_refused():
    with pytest.raises(InputError, match="expert 3 is chosen 3 times by 2 tokens; a token names it once"):
        Planner(dims())(torch.tensor([[3, 3], [3, 2]]))
