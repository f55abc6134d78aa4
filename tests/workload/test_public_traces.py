"""The public traces themselves, where they lie beside the checkout."""

import time
from pathlib import Path

import numpy as np
import pytest

from asaplab.workload import prompt, read_trace

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="needs the public traces in ../shared/traces")


@pytest.mark.parametrize(
    ("file", "format", "requests", "excluded", "first"),
    [
        ("azure2023/AzureLLMInferenceTrace_code.csv", "azure", 8819, 0, [4808, 3180, 110]),
        ("azure2023/AzureLLMInferenceTrace_conv.csv", "azure", 19366, 0, [374, 396, 879]),
        (
            "azure2024_code_slice/AzureLLMInferenceTrace_code_1week.rows3765335-3766358.csv",
            "azure",
            1024,
            0,
            [1911, 642],
        ),
        ("burstgpt_docrows/BurstGPT_1.docrows.csv", "burstgpt", 7, 0, [472, 1087, 417]),
        ("burstgpt_docrows/BurstGPT_3.docrows.csv", "burstgpt", 3, 0, [906, 36, 1779]),
        ("mooncake/conversation_trace.0-300s.jsonl", "mooncake", 918, None, [6758, 7322, 7236]),
        ("qwen_bailian_docrows/qwen.docrows.jsonl", "bailian", 1, 0, [502]),
    ],
)
def test_every_format_is_recognised_and_read_whole(file, format, requests, excluded, first):
    w = read_trace(TRACES / file)
    assert w.source["format"] == format
    assert len(w) + w.excluded == requests
    assert excluded is None or w.excluded == excluded
    assert w.tokens[: len(first)].tolist() == first
    assert w.arrival_s[0] == 0


def test_a_large_trace_is_read_fast():
    path = TRACES / "azure2023/AzureLLMInferenceTrace_conv.csv"
    best = min(_seconds(path) for _ in range(3))
    assert best < 0.5


def _seconds(path):
    start = time.perf_counter()
    read_trace(path)
    return time.perf_counter() - start


def test_mooncake_prefixes_survive_scaling():
    path = TRACES / "mooncake/conversation_trace.0-300s.jsonl"
    w = read_trace(path, limit=100, length_scale=0.05)
    shared = 0
    for i in range(0, 100, 7):
        for j in range(1, 100, 9):
            a, b = w.hash_ids[i], w.hash_ids[j]
            blocks = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            until = min(round(blocks * w.block_tokens), w.tokens[i], w.tokens[j])
            assert np.array_equal(prompt(w, i, 1000)[:until], prompt(w, j, 1000)[:until])
            shared = max(shared, until if i != j else 0)
    assert shared >= 26  # block 0 starts every conversation


def test_the_smoke_command_of_the_readme_fits_its_model():
    """64 requests at a twentieth of their length and a tenth of their time: nothing is left out."""
    path = TRACES / "mooncake/conversation_trace.0-300s.jsonl"
    w = read_trace(path, limit=64, length_scale=0.05, time_scale=0.1)
    assert (len(w), w.excluded) == (64, 0)
    assert w.arrival_s[-1] == pytest.approx(1.8, abs=0.9)
