"""Expert skew and copies of hot experts: shares by the stated rule, and what they do to a run."""

import json

import numpy as np
import pytest

from asaplab import cli, workload
from asaplab.errors import InputError
from asaplab.twin import Skew, device_shares, setting_of, simulate


def test_without_skew_every_device_gets_as_much():
    np.testing.assert_allclose(Skew().shares_LE(256, 16, 3), 1 / 16)


def test_a_copy_of_the_hottest_expert_goes_to_the_device_with_the_fewest_rows():
    loads = np.array([[6.0, 1, 1, 1, 1, 0]])  # homes: 6 + 1, 1 + 1, 1 + 0
    np.testing.assert_allclose(device_shares(loads, 3) * 10, [[7, 2, 1]])
    np.testing.assert_allclose(device_shares(loads, 3, 1) * 10, [[4, 2, 4]])  # 3 of the 6 rows move
    np.testing.assert_allclose(device_shares(loads, 3, 2) * 10, [[3, 4, 3]])  # three copies of 2 rows each


@pytest.mark.parametrize("redundant", [0, 1, 16, 37, 128])
def test_shares_sum_to_one_and_copies_never_load_the_hottest_device_more(redundant):
    plain, evened = (Skew(exponent=1.0, redundant=n, seed=3).shares_LE(64, 8, 5) for n in (0, redundant))
    np.testing.assert_allclose(evened.sum(axis=1), 1.0)
    assert (evened.max(axis=1) <= plain.max(axis=1) + 1e-12).all()


def test_copies_cost_the_floor_of_their_weights():
    plain, more = (setting_of("asap", skew=Skew(redundant=n)).costs.stage for n in (0, 17))
    assert more.moe_floor_s == pytest.approx(plain.moe_floor_s * (16 + 2) / 16)
    assert more.moe_row_s == plain.moe_row_s


@pytest.mark.parametrize("system", ["asap", "default"])
def test_skew_slows_a_run_and_copies_win_most_of_it_back(system):
    traffic = workload.poisson(rps=7.0, duration_s=40.0, seed=2)
    balanced, skewed, evened = (
        simulate(traffic, system, skew=skew).requests["ttft_s"].mean()
        for skew in (Skew(), Skew(exponent=0.8), Skew(exponent=0.8, redundant=64))
    )
    assert balanced < evened < skewed
    assert evened - balanced < 0.5 * (skewed - balanced)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="skew is -1"):
        Skew(exponent=-1.0)
    with pytest.raises(InputError, match="copies must not be negative"):
        Skew(redundant=-1)
    with pytest.raises(InputError, match="0 to 6 copies of 6 experts"):
        device_shares(np.ones((1, 6)), 2, 7)
    with pytest.raises(InputError, match="give one of them"):
        setting_of("asap", skew=Skew(), shares_LE=np.full((1, 16), 1 / 16))


def test_the_command_takes_skew_and_copies(capsys):
    def mean(*flags):
        assert cli.main(["simulate", "--rps", "8", "--duration", "20", "--json", *flags]) == 0
        return json.loads(capsys.readouterr().out)["mean_ttft_s"]

    assert mean() < mean("--skew", "0.8", "--redundant", "64") < mean("--skew", "0.8")
