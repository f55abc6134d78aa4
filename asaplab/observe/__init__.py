"""What a run says: saving and loading, metrics, TTFT decomposition, spans and exports. Every figure reads these."""

from asaplab.observe.decompose import FIGURE_15_BINS, PAPER_PARTS, decompose
from asaplab.observe.encoding import system_from_dict, to_plain
from asaplab.observe.export import chrome_trace
from asaplab.observe.metrics import dp_imbalance, imbalance, loads, metrics, moe_imbalance
from asaplab.observe.provenance import provenance
from asaplab.observe.spans import SpanLog, concat, no_spans
from asaplab.observe.store import load, save

__all__ = [
    "FIGURE_15_BINS",
    "PAPER_PARTS",
    "SpanLog",
    "chrome_trace",
    "concat",
    "decompose",
    "dp_imbalance",
    "imbalance",
    "load",
    "loads",
    "metrics",
    "moe_imbalance",
    "no_spans",
    "provenance",
    "save",
    "system_from_dict",
    "to_plain",
]
