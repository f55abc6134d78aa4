import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asaplab.core import Workload
from asaplab.errors import InputError
from asaplab.workload import poisson, read_trace, write_trace
from asaplab.workload.formats import FORMATS

MOONCAKE = (
    '{"timestamp": 27000, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
    '{"timestamp": 27000, "input_length": 512, "output_length": 5, "hash_ids": [0]}\n'
    f'{{"timestamp": 30000, "input_length": 40000, "output_length": 5, "hash_ids": {list(range(79))}}}\n'
)
AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,4808,10\r\n"
    "2023-11-16 18:17:04.0319601,3,8\r\n"
    "2023-11-16 18:18:04.0319601,2,8"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-12 08:47:44.022580+00:00,1911,8\n"
    "2024-05-12 08:47:44.256460+00:00,642,6\n"
)
BURSTGPT = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.0,d5983bf9,2,ChatGPT,36,0,36,Conversation log\n"
    "19440192.0,a5c69b35,8,GPT-4,1779,123,1902,Conversation log\n"
)
BAILIAN = (
    '{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 20, "hash_ids": [7, 8]}\n'
    '{"chat_id": 1, "parent_chat_id": 0, "timestamp": 61.25, "input_length": 33, "hash_ids": [7, 8, 9]}\n'
)


def trace(tmp_path: Path, text: str, **options) -> Workload:
    path = tmp_path / "a.trace"
    path.write_bytes(text.encode())
    return read_trace(path, **options)


def test_mooncake_counts_milliseconds_from_its_first_request(tmp_path):
    w = trace(tmp_path, MOONCAKE)
    assert w.arrival_s.tolist() == [0, 0]
    assert w.tokens.tolist() == [1025, 512]
    assert w.hash_ids == ((0, 1, 2), (0,))
    assert w.block_tokens == 512
    assert w.excluded == 1
    assert w.source["excluded_note"] == "1 prompt of trace a.trace longer than S = 32768 tokens left out before the run"
    assert w.source["format"] == "mooncake"
    with pytest.raises(InputError, match="1 prompt longer than S = 32768 tokens"):
        trace(tmp_path, MOONCAKE, strict=True)
    assert trace(tmp_path, MOONCAKE, max_batch_tokens=40000, strict=True).arrival_s.tolist() == [0, 0, 3]


def test_azure_2023_keeps_its_seven_digits(tmp_path):
    w = trace(tmp_path, AZURE_2023)
    np.testing.assert_allclose(w.arrival_s, [0, 0.0520001, 60.0520001], rtol=0, atol=1e-9)
    assert w.tokens.tolist() == [4808, 3, 2]
    assert w.hash_ids is None


def test_azure_2024_has_a_time_zone(tmp_path):
    w = trace(tmp_path, AZURE_2024)
    np.testing.assert_allclose(w.arrival_s, [0, 0.23388], atol=1e-9)
    assert w.tokens.tolist() == [1911, 642]


def test_burstgpt_leaves_failed_requests_out(tmp_path):
    w = trace(tmp_path, BURSTGPT)
    assert w.arrival_s.tolist() == [0, 82]
    assert w.tokens.tolist() == [906, 1779]
    assert w.source["failed_in_trace"] == 1


def test_bailian_counts_seconds_and_blocks_of_sixteen(tmp_path):
    w = trace(tmp_path, BAILIAN)
    assert w.arrival_s.tolist() == [0, 60.75]
    assert w.block_tokens == 16
    assert w.hash_ids == ((7, 8), (7, 8, 9))
    with pytest.raises(InputError, match=r"line 1: timestamp is 0.5; Mooncake counts whole milliseconds"):
        trace(tmp_path, BAILIAN, format="mooncake")


def test_limit_scales_and_seed(tmp_path):
    w = trace(tmp_path, AZURE_2023, limit=2, length_scale=0.001, time_scale=10)
    np.testing.assert_allclose(w.arrival_s, [0, 0.520001], atol=1e-9)
    assert w.tokens.tolist() == [5, 1]
    assert w.source["length_scale"] == 0.001


def test_prompts_are_left_out_after_scaling_and_counted_among_the_limit(tmp_path):
    assert trace(tmp_path, MOONCAKE, length_scale=0.5).excluded == 0
    w = trace(tmp_path, MOONCAKE, limit=1, max_batch_tokens=1025)
    assert (len(w), w.excluded) == (1, 0)
    with pytest.raises(InputError, match="every prompt"):
        trace(tmp_path, MOONCAKE, limit=1, max_batch_tokens=1024)


def test_unsorted_lines_are_put_in_order_with_their_own_blocks(tmp_path):
    lines = MOONCAKE.splitlines(keepends=True)
    w = trace(tmp_path, lines[2] + lines[1], max_batch_tokens=10**6)
    assert w.arrival_s.tolist() == [0, 3]
    assert w.tokens.tolist() == [512, 40000]
    assert w.hash_ids[0] == (0,)


def test_spreading_keeps_every_request_in_its_tick(tmp_path):
    rows = [(tick, n) for tick in (0, 3000, 6000, 12000) for n in range(50)] + [(13000, 0)]
    text = "".join(f'{{"timestamp": {tick}, "input_length": 5}}\n' for tick, _ in rows)
    w = trace(tmp_path, text, spread=True, seed=4)
    ticks = np.sort([tick / 1000 for tick, _ in rows])
    gaps = w.arrival_s - ticks
    assert (gaps >= 0).all()
    assert gaps.max() < 3
    assert gaps[-1] == 0  # shares its tick with nobody
    assert len(np.unique(w.arrival_s)) == len(rows)
    assert np.all(w.arrival_s[150:200] < 13)
    assert np.array_equal(w.arrival_s, trace(tmp_path, text, spread=True, seed=4).arrival_s)
    assert not np.array_equal(w.arrival_s, trace(tmp_path, text, spread=True, seed=5).arrival_s)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"timestamp": 0, "input_length": 5}\n\nnonsense\n', "line 3: not valid JSON"),
        ('{"timestamp": 0, "input_length": 5}\n[1]\n', "line 2: not an object with timestamp and input_length"),
        ('{"timestamp": 0, "input_length": 0}\n', "line 1: input_length is 0"),
        ('{"timestamp": 0, "input_length": "5"}\n', "line 1: input_length is '5', not a whole number"),
        ('{"timestamp": true, "input_length": 5}\n', "line 1: timestamp is True"),
        ('{"timestamp": 0, "input_length": 5, "hash_ids": 3}\n', "line 1: hash_ids is not a list"),
        ('{"timestamp": 0, "input_length": 513, "hash_ids": [3]}\n', "1 hash_ids for 513 tokens"),
        (
            '{"timestamp": 0, "input_length": 5, "hash_ids": [3]}\n{"timestamp": 1, "input_length": 5}\n',
            "line 2: hash_ids are on some lines only",
        ),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,12\nyesterday,3\n", "line 3: TIMESTAMP is 'yesterday'"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,\n", "line 2: ContextTokens is ''"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,0\n", "line 2: ContextTokens is 0"),
        ("TIMESTAMP,ContextTokens\n2023-11-16 18:17:03,5,5\n", "line 2: 3 columns where the header has 2"),
        ("TIMESTAMP,ContextTokens\n,5\n", "line 2: TIMESTAMP is empty"),
        (BURSTGPT + "x,a,1,b,5,5,5,c\n", "line 5: Timestamp is 'x'"),
        (BURSTGPT + "nan,a,1,b,5,5,5,c\n", "line 5: timestamp is nan, not a number of seconds"),
        ("a,b,c\n1,2,3\n", "no known trace starts like this: 'a,b,c'"),
        ("", "no known trace starts like this"),
        ("TIMESTAMP,ContextTokens\n", "holds no request"),
    ],
)
def test_a_malformed_line_is_named_by_its_number(tmp_path, text, says):
    with pytest.raises(InputError, match=r"^trace a\.trace[^\n]*$") as error:
        trace(tmp_path, text)
    assert says in str(error.value)


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**390, 10**400),
    st.floats(),
    st.text(),
    st.lists(st.integers()),
)
FIELDS = st.dictionaries(st.sampled_from(["timestamp", "input_length", "hash_ids", "chat_id"]), JSON_VALUES)
CELLS = st.lists(st.one_of(st.text(max_size=12), st.integers().map(str), st.just("2023-11-16 18:17:03")), max_size=9)
HEADERS = [AZURE_2023.splitlines()[0], BURSTGPT.splitlines()[0], ""]


@given(
    st.one_of(
        st.text(),
        st.lists(FIELDS, min_size=1, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows))),
        st.tuples(st.sampled_from(HEADERS), st.lists(CELLS.map(",".join))).map(lambda t: "\n".join([t[0], *t[1]])),
    ),
    st.sampled_from(["auto", *FORMATS]),
)
@settings(max_examples=400, deadline=None)
def test_whatever_a_file_holds_the_answer_is_a_workload_or_one_sentence(tmp_path_factory, text, format):
    path = tmp_path_factory.mktemp("any") / "a.trace"
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    answer = _answer(path, format)
    if isinstance(answer, Workload):
        assert len(answer) >= 1
    else:
        assert "\n" not in answer
        assert len(answer) < 400


def _answer(path, format):
    try:
        return read_trace(path, format=format)
    except InputError as error:
        return str(error)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_trace(tmp_path)
    (tmp_path / "x.gz").write_bytes(b"\x1f\x8b\x08\xff\xfe")
    with pytest.raises(InputError, match="not a text file"):
        read_trace(tmp_path / "x.gz")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"limit": 0}, "limit is 0"),
        ({"length_scale": 0}, "length_scale is 0"),
        ({"time_scale": -1}, "time_scale is -1"),
        ({"time_scale": float("nan")}, "time_scale is nan"),
        ({"max_batch_tokens": 0}, "max_batch_tokens is 0"),
        ({"format": "vidur"}, "there is no trace format 'vidur'"),
        ({"format": "burstgpt"}, "the header has no column 'Timestamp'"),
    ],
)
def test_options_out_of_range(tmp_path, options, says):
    with pytest.raises(InputError, match=says):
        trace(tmp_path, AZURE_2023, **options)


STEP_S = {"mooncake": 1e-3, "azure": 1e-7, "bailian": 0, "burstgpt": 0}
BLOCK = {"mooncake": 512, "bailian": 16}


@given(
    rows=st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 5000)), min_size=1, max_size=20),
    format=st.sampled_from(sorted(STEP_S)),
)
@settings(max_examples=100, deadline=None)
def test_what_is_written_is_read_back(tmp_path_factory, rows, format):
    arrival_s = np.sort([at / 1e4 for at, _ in rows])
    tokens = np.array([n for _, n in rows])
    block = BLOCK.get(format, 512)
    hashes = tuple(tuple(range(i, i - -n // block)) for i, n in enumerate(tokens.tolist())) if format in BLOCK else None
    w = Workload(arrival_s=arrival_s, tokens=tokens, hash_ids=hashes, block_tokens=block)
    path = tmp_path_factory.mktemp("trace") / "w"
    write_trace(w, path, format)
    again = read_trace(path)
    assert again.source["format"] == format
    np.testing.assert_allclose(again.arrival_s, arrival_s - arrival_s[0], rtol=1e-12, atol=1.01 * STEP_S[format] + 1e-9)
    assert sorted(again.tokens.tolist()) == sorted(tokens.tolist())
    if STEP_S[format] < 1e-4:  # no ties arise by rounding, so the order is kept
        assert np.array_equal(again.tokens, tokens)
        assert again.hash_ids == hashes


def test_blocks_of_another_size_are_not_written_as_mooncake(tmp_path):
    with pytest.raises(InputError, match=r"blocks of 256 tokens, but mooncake blocks hold 512"):
        write_trace(trace(tmp_path, MOONCAKE, length_scale=0.5), tmp_path / "w", "mooncake")
    with pytest.raises(InputError, match="no trace format"):
        write_trace(poisson(rps=1, requests=1), tmp_path / "w", "parquet")
