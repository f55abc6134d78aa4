"""The MoE super kernel: one grouped expert MLP for all layers, the layer id read inside the call (section 3.4.2)."""

from asaplab.superkernel.capability import cpu_capability
from asaplab.superkernel.kernel import grouped_mlp
from asaplab.superkernel.packing import pack
from asaplab.superkernel.rowwise import Linear, linear, pack_linear, sigmoid, silu
from asaplab.superkernel.table import AddressTable

__all__ = [
    "AddressTable",
    "Linear",
    "cpu_capability",
    "grouped_mlp",
    "linear",
    "pack",
    "pack_linear",
    "sigmoid",
    "silu",
]
