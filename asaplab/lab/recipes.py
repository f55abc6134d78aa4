"""The named experiments. A recipe is a complete configuration; notebooks and the command line name one.

Every recipe is a function of a scale and of the settings to change. ``smoke`` answers in under a minute on two cores,
``paper`` uses the paper's durations and seeds. A setting that a recipe does not have is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from asaplab.errors import InputError
from asaplab.lab.commands_engine import parse_attention

# The rates of Figure 12 as far as the twin needs them to show the knee of each system.
RATES = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment, ready to run: ``recipe["rps"]`` is a setting, ``out`` the folder for what it finds."""

    name: str
    notebook: str  # the stem of its file in notebooks/
    body: Literal["engine", "twin"]  # engine recipes measure real processes and have the machine for themselves
    scale: str
    seed: int
    out: Path
    settings: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @property
    def attention(self) -> tuple[int, int]:
        """(D, T) of the setting ``attention``, which is written as DxT."""
        return parse_attention(self.settings["attention"])


def _recipe(name: str, notebook: str, body: Any, scale: str, changes: Mapping[str, Any], **settings: Any) -> Recipe:
    if scale not in ("smoke", "paper"):
        raise InputError(f"scale is {scale!r}; it must be 'smoke' or 'paper'")
    allowed = ["scale", "seed", "out", *settings]
    for key in changes:
        if key not in allowed:
            raise InputError(f"recipe {name!r} has no parameter {key!r}; its parameters are {', '.join(allowed)}")
    given = {key: value for key, value in changes.items() if value is not None}  # None keeps the recipe's own value
    seed, out = given.pop("seed", 0), given.pop("out", f"runs/{notebook}")
    settings |= {key: _as(settings[key], value, f"recipe {name!r}: {key}") for key, value in given.items()}
    return Recipe(
        name=name, notebook=notebook, body=body, scale=scale, seed=int(seed), out=Path(out), settings=settings
    )


def _as(pattern: Any, value: Any, who: str) -> Any:
    """The value in the shape of the setting that it replaces: papermill and the shell know only plain values."""
    if isinstance(pattern, tuple):
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
        return tuple(_as(pattern[0], part.strip() if isinstance(part, str) else part, who) for part in parts)
    if pattern is None or isinstance(value, type(pattern)):
        return value
    try:
        return type(pattern)(value)
    except (TypeError, ValueError):
        raise InputError(f"{who} is {value!r}; it must be a {type(pattern).__name__}") from None


def _at(scale: str, smoke: Any, paper: Any) -> Any:
    return paper if scale == "paper" else smoke


# On a laptop: prompts of the paper's distribution, a twentieth as long. On the twin: the paper's own instance.
_SMALL = {"model": "tiny-deepseek-v3", "attention": "2x1", "experts": 2, "mode": "paced", "trace": ""} | {
    "length_scale": 0.05,
    "time_scale": 1.0,
}
_PAPER = {"model": "deepseek-v3.2", "profile": "cloudmatrix384", "attention": "", "experts": 0}  # the paper's D, T, E


def quickstart(scale: str = "smoke", **changes: Any) -> Recipe:
    """What does asynchrony change for the same requests on the same number of devices? (sections 2-3)"""
    settings = _SMALL | {"systems": ("default", "asap"), "requests": _at(scale, 48, 200), "rps": 0.0, "load": 0.6}
    return _recipe("quickstart", "01_quickstart", "engine", scale, changes, **settings)


def deploy(scale: str = "smoke", **changes: Any) -> Recipe:
    """How do I place a model on devices, watch them and tear them down? (section 3.1)"""
    settings = _SMALL | {"system": "asap", "requests": _at(scale, 16, 100), "rps": 6.0}
    return _recipe("deploy", "02_deploy", "engine", scale, changes, **settings)


def characterization(scale: str = "smoke", **changes: Any) -> Recipe:
    """How do attention, experts and prompt lengths behave that make barriers expensive? (section 2.2, Figures 3-5)"""
    return _recipe(
        "characterization",
        "03_characterization",
        "engine",
        scale,
        changes,
        model="tiny-deepseek-v3",
        lengths=_at(scale, (128, 256, 512, 1024, 2048), (128, 256, 512, 1024, 2048, 4096)),
        tokens=_at(scale, (8, 32, 128, 512), (8, 16, 32, 64, 128, 256, 512, 1024, 2048)),
        requests=20_000,
    )


def live_pipeline(scale: str = "smoke", **changes: Any) -> Recipe:
    """What does the pipeline look like while it runs, with barriers and without? (Figure 1)"""
    settings = _PAPER | {"systems": ("default", "asap"), "rps": 6.0, "duration_s": 20.0, "window_s": 0.25}
    return _recipe("live_pipeline", "04_live_pipeline", "twin", scale, changes, **settings)


def end_to_end(scale: str = "smoke", **changes: Any) -> Recipe:
    """Which request rate does each system sustain within the SLO? (section 5.2, Figures 12 and 13)"""
    return _recipe(
        "end_to_end",
        "05_end_to_end",
        "twin",
        scale,
        changes,
        **_PAPER,
        systems=("default", "chunked", "asap"),
        rps=_at(scale, (1.0, 4.0, 8.0, 16.0), RATES),
        duration_s=_at(scale, 60.0, 300.0),
        slo_s=5.0,
        repeats=_at(scale, 1, 5),
    )


def decomposition(scale: str = "smoke", **changes: Any) -> Recipe:
    """Where does the time to first token go, for short and for long prompts? (section 5.3, Figure 15)"""
    settings = _PAPER | {"systems": ("default", "asap"), "rps": 4.0, "duration_s": _at(scale, 60.0, 300.0)}
    return _recipe("decomposition", "06_decomposition", "twin", scale, changes, **settings)


def communication(scale: str = "smoke", **changes: Any) -> Recipe:
    """What do asynchronous primitives cost against synchronous point-to-point sends? (section 5.4, Figure 14)"""
    tokens = _at(scale, (128, 512, 1024), (128, 512, 1024, 2048, 4096, 8192))
    settings = {"model": "deepseek-v3.2", "profile": "cloudmatrix384", "tokens": tokens, "receivers": 4}
    return _recipe("communication", "07_communication", "engine", scale, changes, **settings)


def _ablation(name: str, notebook: str, scale: str, changes: Mapping[str, Any]) -> Recipe:
    settings = {"rps": _at(scale, (2.0, 8.0, 16.0), RATES), "duration_s": _at(scale, 60.0, 300.0), "slo_s": 5.0}
    return _recipe(name, notebook, "twin", scale, changes, **_PAPER, **settings, repeats=_at(scale, 1, 5))


def dual_batch(scale: str = "smoke", **changes: Any) -> Recipe:
    """What does interleaving two batches bring, and what does it cost at low load? (section 5.5.1, Figure 16)"""
    return _ablation("dual_batch", "08_dual_batch", scale, changes)


def overlap(scale: str = "smoke", **changes: Any) -> Recipe:
    """What does communication on streams of its own bring? (section 5.5.2, Figure 17)"""
    return _ablation("overlap", "09_overlap", scale, changes)


def super_kernel(scale: str = "smoke", **changes: Any) -> Recipe:
    """What does one kernel for all layers bring over dispatching one a layer? (section 5.5.3, Figure 18)"""
    return _ablation("super_kernel", "10_super_kernel", scale, changes)


def settling(scale: str = "smoke", **changes: Any) -> Recipe:
    """How much of the gain is asynchrony, and what does asynchrony itself cost? (beyond the paper)"""
    return _ablation("settling", "11_settling_ablation", scale, changes)


def design_space(scale: str = "smoke", **changes: Any) -> Recipe:
    """Which D, T and E serve most requests on a given number of devices? (beyond the paper)"""
    settings = {"model": "deepseek-v3.2", "profile": "cloudmatrix384", "devices": 32, "slo_s": 5.0}
    settings |= {"finalists": _at(scale, 5, 10), "repeats": _at(scale, 1, 5)}
    return _recipe("design_space", "12_design_space", "twin", scale, changes, **settings)


def your_traffic(scale: str = "smoke", **changes: Any) -> Recipe:
    """Would this help my model and my traffic, and why? (bring a trace and a config.json)"""
    return _recipe(
        "your_traffic",
        "13_your_traffic",
        "twin",
        scale,
        changes,
        **_PAPER,
        trace="",
        systems=("default", "chunked", "asap"),
        duration_s=_at(scale, 60.0, 300.0),
        slo_s=5.0,
        repeats=_at(scale, 1, 5),
    )


def mailboxes(scale: str = "smoke", **changes: Any) -> Recipe:
    """What lies in the buffers, and who waits for which flag? (section 3.2, Figure 7 and Table 2)"""
    return _recipe("mailboxes", "14_mailboxes", "engine", scale, changes, tokens=6, slots=1)


def head_to_head(scale: str = "smoke", **changes: Any) -> Recipe:
    """How do the published designs compare on one cost model? (sections 5.1 and 6)"""
    return _recipe(
        "head_to_head",
        "15_head_to_head",
        "twin",
        scale,
        changes,
        **_PAPER,
        systems=("default", "chunked", "better-sync", "megascale-infer", "step3", "asap"),
        duration_s=_at(scale, 60.0, 300.0),
        slo_s=5.0,
        repeats=_at(scale, 1, 5),
    )


RECIPES: dict[str, Callable[..., Recipe]] = {
    function.__name__: function
    for function in (
        quickstart,
        deploy,
        characterization,
        live_pipeline,
        end_to_end,
        decomposition,
        communication,
        dual_batch,
        overlap,
        super_kernel,
        settling,
        design_space,
        your_traffic,
        mailboxes,
        head_to_head,
    )
}


def recipe(name: str, scale: str = "smoke", **changes: Any) -> Recipe:
    """The recipe of that name with some settings changed; None keeps a setting.

    Raises:
        InputError: no such recipe, scale or setting, or a value of the wrong kind.
    """
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name!r}; the recipes are {', '.join(RECIPES)}")
    return RECIPES[name](scale, **changes)


def question(name: str) -> str:
    """What the recipe answers, in one sentence, with the paper's section."""
    return (RECIPES[name].__doc__ or "").strip()
