"""The measured profile: written, read, and refused with one sentence."""

from dataclasses import replace

import numpy as np
import pytest

from asaplab.core import Instance
from asaplab.errors import InputError
from asaplab.lab.calibrate import attention_coefficients, calibrate
from asaplab.profiles import local
from asaplab.profiles.named import profile_of
from asaplab.twin import simulate
from asaplab.workload import poisson

SMALL = Instance(D=2, T=1, E=2)


@pytest.mark.parametrize("name", ["cloudmatrix384", "cloudmatrix384-fitted", "h200"])
def test_a_profile_comes_back_as_it_was_written(name, tmp_path):
    profile = profile_of(name)
    assert local.local(local.write(profile, tmp_path / "a" / "p.json")) == profile


def test_the_twin_prices_our_own_checkpoints_by_this_machines_profile(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local.write(replace(profile_of("h200"), name="local"))
    run = simulate(poisson(rps=2.0, duration_s=10.0), model="tiny-deepseek-v3", profile="local", instance=SMALL)
    assert np.isfinite(run.requests["ttft_s"]).all()
    assert run.configuration["profile"] == "local"
    assert run.configuration["extrapolated"][0].startswith("model: tiny-deepseek-v3 is priced from measurements of")


def test_an_uncalibrated_machine_is_told_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="asaplab calibrate"):
        profile_of("local")


@pytest.mark.parametrize("text", ["", "[]", '{"name": "local"}', '{"name": "x", "hbm": 3}'])
def test_a_file_that_is_no_profile_is_refused(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InputError, match="not a profile"):
        local.local(tmp_path / "p.json")


def test_coefficients_are_recovered():
    batches = ((128,), (512,), (2048,), (256,) * 4)
    seconds = [1e-3 + 2e-6 * sum(b) + 3e-9 * sum(n * n for n in b) for b in batches]
    assert attention_coefficients(batches, seconds) == pytest.approx((1e-3, 2e-6, 3e-9))


@pytest.mark.slow
def test_this_machine_can_be_calibrated():
    quantities = calibrate(quick=True).quantities()
    assert all(q.value > 0 for name, q in quantities.items() if name != "attention_fixed_s")
    assert quantities["dense_rate"].value > 1e9
    assert quantities["latency_s"].value < 0.1
    assert all(q.source for q in quantities.values())
