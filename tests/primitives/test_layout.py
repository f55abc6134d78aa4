"""Layout: Table 2's numbers exactly, and areas that never overlap."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.errors import InputError
from asaplab.primitives import layout
from asaplab.primitives.layout import Dims

PAPER = Dims(D=4, T=4, E=16, E_total=256, K=8, H=7168, S=32768, Dsize=2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention-ids", 65536),
        ("attention-results", 939524096),
        ("attention-flags", 2),
        ("moe-metadata", 256),
        ("moe-tokens", 15032385536),
        ("moe-flags", 2),
    ],
)
def test_table_2(name, value):
    assert layout.table2(PAPER)[name].value == value


def test_384_experts_need_ids_of_two_bytes():
    kimi = Dims(D=4, T=4, E=16, E_total=384, K=8, H=7168, S=32768)
    assert layout.table2(kimi)["attention-ids"].value == 2 * 65536


def test_the_segments_hold_table_2_and_a_row_a_device_saves_the_k_fold_copies():
    assert layout.attention_areas(PAPER).payload_stride == layout.table2(PAPER)["attention-results"].value
    papers = Dims(D=4, T=4, E=16, E_total=256, K=8, H=7168, S=32768, Dsize=2, copies=8)
    area = layout.moe_areas(papers)
    assert area.payloads * area.payload_stride == layout.table2(PAPER)["moe-tokens"].value
    ours = layout.moe_areas(PAPER)
    assert ours.payloads * ours.payload_stride * 8 == layout.table2(PAPER)["moe-tokens"].value


def test_slots_multiply_the_regions():
    one, two = (layout.moe_areas(Dims(D=2, T=2, E=2, E_total=8, K=2, H=64, S=128, slots=slots)) for slots in (1, 2))
    assert (two.count, two.payloads) == (2 * one.count, 2 * one.payloads)


@st.composite
def dims(draw):
    small = st.integers(1, 5)
    E = draw(small)
    E_total = draw(st.integers(E, 40))
    K = draw(st.integers(1, min(E_total, 9)))
    return Dims(
        D=draw(small),
        T=draw(small),
        E=E,
        E_total=E_total,
        K=K,
        H=draw(st.integers(1, 300)),
        S=draw(st.integers(1, 500)),
        Dsize=draw(st.sampled_from([1, 2, 4, 8])),
        slots=draw(st.integers(1, 3)),
        copies=draw(st.sampled_from([1, K])),
    )


def spans(areas, header_bytes, payload_bytes):
    yield 0, layout.PAGE
    for k in range(areas.count):
        yield areas.flag(k), areas.flag(k) + layout.LINE
        yield areas.header(k), areas.header(k) + header_bytes
    for k in range(areas.payloads):
        yield areas.area(k), areas.area(k) + payload_bytes


@settings(max_examples=200, deadline=None)
@given(dims())
def test_nothing_overlaps_and_all_is_inside(d):
    most = min(d.K, d.share)  # experts of a token on one device
    metadata = 64 + 4 * d.share + 4 * d.rank_tokens * most
    rows = d.rank_tokens * (1 if d.copies == 1 else most) * d.H * d.Dsize
    results = d.rank_tokens * d.K * d.H * d.Dsize
    for areas, header, payload, size in (
        (layout.moe_areas(d), metadata, rows, layout.moe_bytes(d)),
        (layout.attention_areas(d), 64, results, layout.attention_bytes(d)),
    ):
        pieces = sorted(spans(areas, header, payload))
        assert all(end <= start for (_, end), (start, _) in pairwise(pieces))
        assert pieces[-1][1] <= size
        assert all(areas.flag(k) % 64 == 0 for k in range(areas.count))
        assert all(areas.area(k) % layout.PAGE == 0 for k in range(areas.payloads))
    moe = layout.moe_areas(d)
    for k in range(moe.count):
        assert moe.header(k) + 64 + 4 * d.share <= moe.index(k, d)
        assert moe.index(k, d) + 4 * d.rank_tokens * most <= moe.header(k) + moe.header_stride
    parts = d.D * d.T * layout.attention_bytes(d) + d.E * layout.moe_bytes(d) + d.D * layout.group_bytes(d)
    assert layout.required_bytes(d) == parts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"T": 0}, "T is 0; a layout needs at least 1"),
        ({"E": 9}, "E is 9 but the model has 8 experts"),
        ({"K": 9}, "K is 9 but the model has 8 experts"),
        ({"copies": 3}, "copies is 3; choose 1"),
    ],
)
def test_dimensions_that_make_no_sense_are_refused(change, says):
    good = {"D": 1, "T": 1, "E": 2, "E_total": 8, "K": 2, "H": 64, "S": 128}
    with pytest.raises(InputError, match=says):
        Dims(**good | change)


def test_too_little_memory_is_one_sentence_with_formula_and_figures(monkeypatch):
    """Before anything starts: people want the formula, not an out-of-memory in the middle."""
    monkeypatch.setattr(layout, "available_bytes", lambda: 1_000_000)
    with pytest.raises(InputError) as caught:
        layout.check_memory(PAPER)
    said = str(caught.value)
    assert f"{layout.required_bytes(PAPER):,} bytes" in said
    assert "1,000,000 are available" in said
    assert "S*H*Dsize" in said
    assert "\n" not in said
    layout.check_memory(Dims(D=1, T=1, E=1, E_total=2, K=1, H=8, S=16))


def test_the_control_group_limits_what_is_available(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    monkeypatch.setattr(layout, "CGROUP", tmp_path)
    assert layout.available_bytes() == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert layout.available_bytes() > 3000
