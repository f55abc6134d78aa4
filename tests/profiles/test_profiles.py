"""Profiles: limits that nothing beats, anchors that are met, sources for every number, models by name."""

import json

import pytest

from asaplab.core import Instance
from asaplab.errors import InputError
from asaplab.models.config import ModelConfig
from asaplab.models.counts import counts
from asaplab.models.tiny import CONFIGS
from asaplab.profiles.named import NAMES, profile_of
from asaplab.profiles.profile import instance_costs
from asaplab.profiles.shapes import MODELS, model_of

PAPER = Instance(D=4, T=4, E=16)
PARAMETERS = {  # billions, as the models' cards say
    "deepseek-v3.2": 671,
    "deepseek-v3": 671,
    "kimi-k2": 1000,
    "qwen3-235b": 235,
    "qwen3-30b": 30.5,
    "glm-4.5": 355,
    "gpt-oss-120b": 117,
}
TABLES = [name for name in NAMES if name != "local"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_shapes_add_up_to_the_parameters_of_the_model_card(name):
    m = MODELS[name]
    total = m.role_weights + (m.L - m.dense) * m.E_total * m.expert_weights
    assert total / 1e9 == pytest.approx(PARAMETERS[name], rel=0.04)


@pytest.mark.parametrize("profile", TABLES)
@pytest.mark.parametrize("model", sorted(MODELS))
def test_no_cost_beats_a_peak_the_memory_or_a_link(profile, model):
    p, m = profile_of(profile), model_of(model)
    c = instance_costs(p, m, PAPER)
    slack = 1 + 1e-9
    assert m.attention_token / PAPER.T / c.stage.attention_token_s <= p.dense_rate.value * slack
    assert m.attention_square / PAPER.T / c.stage.attention_square_s <= p.dense_rate.value * slack
    assert m.expert_row / c.stage.moe_row_s <= p.dense_rate.value * slack
    weights = m.E_total / PAPER.E * m.expert_weights * p.weight_bytes.value
    assert weights / c.stage.moe_floor_s <= p.hbm.value * slack
    assert m.K * m.H * p.dispatch_bytes.value / PAPER.T / c.dispatch_token_s <= p.link.value * slack
    assert m.K * m.H * p.combine_bytes.value / PAPER.T / c.combine_token_s <= p.link.value * slack


@pytest.mark.parametrize("profile", TABLES)
def test_every_number_has_a_source(profile):
    for name, quantity in profile_of(profile).quantities().items():
        assert quantity.source.strip(), name


def test_the_disparity_of_figure_4_is_met():
    stage = instance_costs(profile_of("cloudmatrix384"), model_of("deepseek-v3.2"), Instance(D=8, T=4, E=32)).stage
    one, many = stage.attention_s(32768, 32768**2), stage.attention_s(32768, 32 * 1024**2)
    assert one / many == pytest.approx(4.2, rel=0.01)


@pytest.mark.parametrize("E", [16, 32])
def test_the_inflection_of_figure_3b_is_met_whatever_the_number_of_devices(E):
    m = model_of("deepseek-v3.2")
    stage = instance_costs(profile_of("cloudmatrix384"), m, Instance(D=4, T=4, E=E)).stage
    below, at, above = (stage.moe_s(tokens * m.K / E) for tokens in (100, 2047, 4096))
    assert below == at
    assert above == pytest.approx(2 * at, rel=0.01)


def test_moe_is_at_most_a_seventh_of_attention_at_16k_tokens():
    m = model_of("deepseek-v3.2")
    stage = instance_costs(profile_of("cloudmatrix384"), m, Instance(D=8, T=4, E=32)).stage
    assert stage.moe_s(16384 * m.K / 32) <= 0.15 * stage.attention_s(16384, 16384**2)


def test_more_experts_than_a_device_can_have_and_unknown_names_are_refused():
    with pytest.raises(InputError, match="experts"):
        instance_costs(profile_of("h200"), model_of("qwen3-30b"), Instance(D=1, T=1, E=129))
    with pytest.raises(InputError, match="there is no profile 'abacus'"):
        profile_of("abacus")
    with pytest.raises(InputError, match="there is no model"):
        model_of("gpt-9")


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_shapes_of_our_own_checkpoints_are_those_of_their_configuration(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    config = ModelConfig.load(tmp_path)
    counted, m = counts(config), model_of(name)
    assert (m.L, m.dense, m.H, m.heads) == (config.L, len(config.dense_layers), config.H, config.heads)
    assert (m.K, m.E_total, m.expert_row) == (counted.K, counted.E_total, counted.expert_per_row)
    assert m.attention_token == counted.attention_per_token
    index = config.indexer
    assert m.indexer == (index.heads * index.dim if index else 0)
