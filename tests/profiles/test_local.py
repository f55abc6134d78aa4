"""The measured profile: written, read, and refused with one sentence."""

import pytest

from asaplab.errors import InputError
from asaplab.lab.calibrate import attention_coefficients, calibrate
from asaplab.profiles import local
from asaplab.profiles.cloudmatrix import cloudmatrix384
from asaplab.profiles.named import profile_of


def test_a_profile_comes_back_as_it_was_written(tmp_path):
    profile = cloudmatrix384()
    assert local.local(local.write(profile, tmp_path / "a" / "p.json")) == profile


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
