"""Sliders and switches beside a picture: each change calls for a new run and shows it, in any notebook and in Voila."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from asaplab.core import Run, System
from asaplab.errors import AsapError

SWITCHES = ("interleaving", "overlap", "super kernel")


def adjusted(system: System, *, interleaving: bool = True, overlap: bool = True, super_kernel: bool = True) -> System:
    """A system with some of its mechanisms switched off, one field each (section 5.5); colocated ones have none."""
    pipeline = system.pipeline
    if not pipeline.barrier and not interleaving:
        pipeline = dataclasses.replace(pipeline, in_flight=1)
    if not pipeline.barrier and not overlap:
        pipeline = dataclasses.replace(pipeline, overlap=frozenset())
    if not super_kernel:
        pipeline = dataclasses.replace(pipeline, layer_oblivious=False)
    return dataclasses.replace(system, pipeline=pipeline)


def controls(
    run_of: Callable[[System, float], Run],
    show: Callable[[Run], str],
    *,
    systems: Sequence[str],
    named: Callable[[str], System],
    rps: float = 4.0,
    most_rps: float = 24.0,
) -> Any:
    """A row of controls over a picture.

    Args:
        run_of: makes a run for a system and a rate (requests/s), from the twin or a running instance.
        show: puts a run into the picture and returns a sentence about it.
        systems: names to choose from; ``named`` turns a name into its system.
        rps: the rate to begin with, and ``most_rps`` the highest on the slider.
    """
    system = ipywidgets.Dropdown(options=list(systems), value=systems[-1], description="system")
    rate = ipywidgets.FloatSlider(
        value=rps, min=0.5, max=most_rps, step=0.5, description="requests/s", continuous_update=False
    )
    switches = [ipywidgets.Checkbox(value=True, description=name, indent=False) for name in SWITCHES]
    says = ipywidgets.HTML()
    for widget, name in zip([system, rate], ["asap-system", "asap-rate"]):
        widget.add_class(name)
    says.add_class("asap-says")

    def change(_: Any = None) -> None:
        on = [switch.value for switch in switches]
        try:
            chosen = adjusted(named(system.value), interleaving=on[0], overlap=on[1], super_kernel=on[2])
            says.value = show(run_of(chosen, rate.value))
        except AsapError as error:  # the sentence belongs beside the control that caused it
            says.value = f"<b>{error}</b>"

    for widget in (system, rate, *switches):
        widget.observe(change, names="value")
    change()
    return ipywidgets.VBox([ipywidgets.HBox([system, rate]), ipywidgets.HBox(switches), says])


def rate(send: Callable[[float], str], *, value: float, most: float = 40.0) -> Any:
    """A slider that calls ``send`` with its rate (requests/s) and shows the sentence that comes back."""
    slider = ipywidgets.FloatSlider(
        value=value, min=0.5, max=most, step=0.5, description="requests/s", continuous_update=False
    )
    slider.add_class("asap-rate")
    says = ipywidgets.HTML()
    says.add_class("asap-says")

    def change(moved: Any) -> None:
        try:
            says.value = send(moved["new"])
        except AsapError as error:
            says.value = f"<b>{error}</b>"

    slider.observe(change, names="value")
    return ipywidgets.VBox([slider, says])


def action(label: str, call: Callable[[], Any]) -> Any:
    """A button that works once."""
    button = ipywidgets.Button(description=label, layout={"width": "max-content"})

    def press(_: Any) -> None:
        button.disabled = True
        call()
        button.description = f"{label}: done"

    button.on_click(press)
    return button
