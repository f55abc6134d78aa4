"""Workloads: arrivals, prompt lengths, public traces in and out, token ids and open-loop replay (sections 2.3, 5.1)."""

from asaplab.workload.poisson import poisson
from asaplab.workload.prompts import block_bounds, prompt
from asaplab.workload.replay import Replay, replay
from asaplab.workload.streams import stream
from asaplab.workload.trace import read_trace, write_trace

__all__ = ["Replay", "block_bounds", "poisson", "prompt", "read_trace", "replay", "stream", "write_trace"]
