"""The native CPU kernels (native/bindings.cpp). Arguments named like memory are addresses."""

ABI: int

def has(set: str) -> bool: ...
def prefer_huge_pages(address: int, bytes: int) -> None: ...
def packed_elements(set: str, bfloat16: bool, H: int, I: int) -> tuple[int, int]: ...
def pack(
    set: str,
    bfloat16: bool,
    H: int,
    I: int,
    gate_up: int,
    down: int,
    packed_gate_up: int,
    packed_down: int,
) -> None: ...
def pack_linear(set: str, bfloat16: bool, N: int, K: int, weight: int, packed: int) -> None: ...
def linear(
    set: str,
    bfloat16: bool,
    N: int,
    K: int,
    x: int,
    x_stride: int,
    m: int,
    weight: int,
    out: int,
    out_stride: int,
    threads: int,
) -> None: ...
def grouped_mlp(
    set: str,
    bfloat16: bool,
    H: int,
    I: int,
    x: int,
    x_stride: int,
    m: int,
    offsets: int,
    layer: int,
    addresses: int,
    layers: int,
    experts: int,
    out: int,
    out_stride: int,
    threads: int,
) -> int: ...
