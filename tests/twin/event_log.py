"""Prints the event log of one small run as JSON: called with and without numba's JIT, which must agree to the bit."""

import json
import sys
from dataclasses import replace

import numpy as np

from asaplab.core import Instance
from asaplab.profiles.shapes import MODELS
from asaplab.scheduler import named
from asaplab.twin import Simulation, layout, power_law_shares, setting_of
from asaplab.workload import poisson


def log(name, skew=0.3):
    instance = Instance(D=8, T=1, E=8) if named(name).placement.kind == "colocated" else Instance(D=3, T=2, E=5)
    setting = setting_of(
        named(name),
        model=replace(MODELS["deepseek-v3"], L=6, dense=1),
        instance=instance,
        shares_LE=power_law_shares(instance.E, skew, seed=4, layers=6),
    )
    simulation = Simulation(setting, poisson(rps=150.0, requests=60, seed=5), log_lines=200_000)
    simulation.play()
    return simulation


if __name__ == "__main__":
    out = {}
    for name in sys.argv[1:]:
        simulation = log(name)
        lines = simulation.log[: int(simulation.count[layout.LOGGED])]
        out[name] = {
            "lines": [[float(v).hex() for v in line] for line in lines],
            "ttft": [float(t).hex() for t in simulation.ttft_s()],
            "count": [float(c).hex() for c in np.delete(simulation.count, layout.LOGGED)],
        }
    print(json.dumps(out))
