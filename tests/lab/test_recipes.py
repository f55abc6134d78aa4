"""Recipes are complete, and refuse what they do not know."""

from __future__ import annotations

import pytest

from asaplab.errors import InputError
from asaplab.lab.recipes import RECIPES, question, recipe
from asaplab.lab.record import parameters


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_every_recipe_is_complete_at_both_scales(name, scale):
    made = recipe(name, scale)
    assert made.scale == scale
    assert str(made.out).endswith(made.notebook)
    assert all(value is not None for value in made.settings.values())
    assert question(name).count("?") == 1


def test_plain_values_take_the_shape_of_the_setting():
    assert recipe("end_to_end", rps=7)["rps"] == (7.0,)
    assert recipe("end_to_end", systems="asap, default")["systems"] == ("asap", "default")
    assert recipe("end_to_end", rps=None)["rps"] == recipe("end_to_end")["rps"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rsp": 7}, "no parameter 'rsp'"),
        ({"rps": "fast"}, "rps is 'fast'"),
        ({"scale": "big"}, "must be 'smoke' or 'paper'"),
    ],
)
def test_what_is_unknown_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(InputError, match=sentence) as refused:
        recipe("end_to_end", **changes)
    assert "\n" not in str(refused.value)


def test_parameters_come_from_the_cells_that_set_them_and_from_nowhere_else():
    history = ["", "# parameters\nrps = None  # rate\nseed = 0", "import asaplab", "# Parameters\nrps = 7\nextra = 1\n"]
    namespace = {"rps": 7, "seed": 0, "extra": 1, "left_over": 3}
    assert parameters(history, namespace) == {"rps": 7, "seed": 0, "extra": 1}
