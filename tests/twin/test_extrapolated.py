"""A run says which of its costs lie outside what its profile was measured on."""

import json

import numpy as np
import pytest

from asaplab import cli
from asaplab.core import Workload
from asaplab.twin import simulate, simulate_cluster


def prompts(*tokens):
    return Workload(arrival_s=np.arange(len(tokens), dtype=float), tokens=np.array(tokens))


def said(*tokens, **setting):
    setting = {"profile": "h200", "model": "deepseek-v3"} | setting
    return simulate(prompts(*tokens), **setting).configuration["extrapolated"]


def test_within_the_measured_range_nothing_is_marked():
    assert said(256, 4096, 32768) == []


def test_each_range_that_is_left_is_named():
    assert said(8, 512)[0] == "prompt tokens: 8 to 512, measured were 16 to 32,768"
    assert said(100)[0] == "rows an expert: 3.125 to 3.125, measured were 8 to 1,024"
    assert said(4096, model="kimi-k2") == ["model: kimi-k2 is priced from measurements of deepseek-v3"]
    assert said(4096, attention=(2, 8)) == ["T: 8, attention was measured at T = 4"]


def test_hot_devices_leave_the_range_first():
    shares = np.full((1, 16), 0.5 / 15)
    shares[0, 0] = 0.5
    assert said(32768, shares_LE=shares) == ["rows an expert: 546.133 to 8,192, measured were 8 to 1,024"]


def test_a_profile_without_measurements_extrapolates_nothing():
    assert said(8, profile="cloudmatrix384") == []


def test_a_cluster_tells_what_any_instance_left():
    run = simulate_cluster(prompts(4096, 8), model="deepseek-v3", profile="h200", instances=2)
    assert [line.split(":")[0] for line in run.configuration["extrapolated"]] == ["prompt tokens", "rows an expert"]


@pytest.mark.parametrize(("profile", "marked"), [("h200", True), ("cloudmatrix384", False)])
def test_the_command_shows_it(capsys, profile, marked):
    assert cli.main(["simulate", "--profile", profile, "--rps", "2", "--duration", "5", "--json"]) == 0
    assert bool(json.loads(capsys.readouterr().out)["extrapolated"]) == marked
