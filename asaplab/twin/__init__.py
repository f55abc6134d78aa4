"""The twin: the same instance and scheduler on a virtual clock, with a cost profile (design: docs/twin.md)."""

from asaplab.twin.cluster import simulate_cluster
from asaplab.twin.run import simulate
from asaplab.twin.setting import Setting, power_law_shares, setting_of, with_system
from asaplab.twin.simulation import Simulation
from asaplab.twin.skew import Skew, device_shares

__all__ = [
    "Setting", "Simulation", "Skew", "device_shares", "power_law_shares", "setting_of", "simulate", "simulate_cluster",
    "with_system",
]  # fmt: skip
