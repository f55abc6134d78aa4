"""Measured rows of AIConfigurator: as shipped, as read from its files, and what is said without the package."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from asaplab.errors import InputError
from asaplab.profiles import aiconfigurator, gpus
from asaplab.profiles.named import profile_of
from asaplab.profiles.shapes import MODELS

ATTENTION = {"model": "deepseek-ai/DeepSeek-V3", "batch_size": 1, "step": 0, "gemm_type": "fp8_block"}
EXPERTS = {"hidden_size": 7168, "inter_size": 2048, "num_experts": 256, "topk": 8, "distribution": "uniform"}


@pytest.mark.parametrize("name", ["h100", "h200", "b200"])
def test_shipped_rows_are_whole_and_carry_their_source(name):
    table = aiconfigurator.shipped(name)
    assert name.upper() in table.device
    assert "aiconfigurator-core" in table.source
    assert list(table.attention_ms) == [2**k for k in range(4, 16)]
    assert max(table.moe_ms) == 32768
    assert set(table.sparse_ms) == {32, 128}
    assert all(np.diff(list(table.attention_ms.values())[4:]) > 0)


@pytest.mark.parametrize("name", ["h100", "h200", "b200"])
def test_a_gpus_profile_gives_its_rows_back(name):
    table, profile = aiconfigurator.shipped(name), profile_of(name)
    v = {key: quantity.value for key, quantity in profile.quantities().items()}
    model = MODELS["deepseek-v3"]
    projections = 2 * (model.attention_weights - model.H * model.E_total)
    for s, ms in table.attention_ms.items():
        linear = projections / 4 / (v["dense_rate"] * v["token_efficiency"]) * s
        square = model.attention_square / 4 / (v["attention_rate"] * v["square_efficiency"]) * s * s
        assert (v["attention_fixed_s"] + linear + square) * 1e3 == pytest.approx(ms, rel=0.11)
    assert profile.quantities()["moe_efficiency"].basis == "measured"
    assert profile.measured is not None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two versions with a few rows for one system."""
    monkeypatch.setattr(aiconfigurator, "_systems", lambda: tmp_path)
    monkeypatch.setattr(aiconfigurator, "version", lambda _: "9.9")

    def write(path, rows):
        file = tmp_path / "data" / "x_sxm" / path
        file.parent.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows), file)

    lengths = (256, 1000, 2048, 16384, 32768)
    for release, slower in (("0.9.0", 100.0), ("0.24.0", 1.0)):
        rows = [
            ATTENTION | {"num_heads": 32, "isl": n, "latency": slower * (k + 0.1 + n / 1e4), "device": "X"}
            for n in lengths
            for k in range(2)  # two kernels
        ]
        rows += [row | {"num_heads": 128, "latency": 1.0} for row in rows]
        write(f"mla/vllm/{release}/mla_context_module_perf.parquet", [row | {"version": release} for row in rows])
    experts = [EXPERTS | {"moe_ep_size": E, "num_tokens": n, "latency": n / 1e5 * E} for n in lengths for E in (8, 16)]
    write("moe/sglang/0.5.10/wideep_context_moe_perf.parquet", [row | {"version": "0.5.10"} for row in experts])
    return tmp_path


def test_the_fastest_kernel_of_the_newest_version_is_read_for_one_rank_and_sixteen_devices(package):
    table = aiconfigurator.installed("x_sxm")
    assert table.attention_ms == pytest.approx({n: 0.1 + n / 1e4 for n in (256, 2048, 16384, 32768)}, abs=1e-4)
    assert table.moe_ms == pytest.approx({n: 16 * n / 1e5 for n in (256, 2048, 16384, 32768)}, abs=1e-4)
    assert table.source == (
        "aiconfigurator-core 9.9, x_sxm: mla_context_module (vLLM 0.24.0), moe_context (SGLang 0.5.10)"
    )


def test_a_system_without_rows_is_refused_by_name(package):
    (package / "data" / "empty").mkdir()
    with pytest.raises(InputError, match="no system 'abacus'; its systems are empty, x_sxm"):
        aiconfigurator.installed("abacus")
    with pytest.raises(InputError, match="no rows of DeepSeek-V3 for 'empty'"):
        aiconfigurator.installed("empty")


@pytest.mark.skipif(find_spec("aiconfigurator_core") is not None, reason="the package is installed")
def test_without_the_package_one_sentence_says_what_to_install():
    with pytest.raises(InputError, match=r"install asaplab\[aiconfigurator\], or use the shipped h100"):
        profile_of("aiconfigurator-h200_sxm")


@pytest.mark.skipif(find_spec("aiconfigurator_core") is None, reason="the package is not installed")
def test_the_installed_package_says_what_is_shipped():
    mine, theirs = profile_of("h200"), profile_of("aiconfigurator-h200_sxm")
    assert aiconfigurator.installed("h200_sxm") == aiconfigurator.shipped("h200")
    assert theirs.token_efficiency.value == pytest.approx(mine.token_efficiency.value, rel=1e-3)


def test_a_fit_that_misses_says_so():
    table = aiconfigurator.shipped("h200")
    bent = replace(table, attention_ms=table.attention_ms | {32768: 40.0})
    assert gpus.attention_fit(bent)[3] > 2 * gpus.attention_fit(table)[3]
