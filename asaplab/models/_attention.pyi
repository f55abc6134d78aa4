ABI: int

def attend(
    kernel: str,
    bfloat16: bool,
    heads: int,
    group: int,
    queries: int,
    start: int,
    d: int,
    dv: int,
    scale: float,
    q: int,
    q_kv: int,
    q_head: int,
    q_row: int,
    k: int,
    k_head: int,
    k_row: int,
    v: int,
    v_head: int,
    v_row: int,
    out: int,
    out_kv: int,
    out_head: int,
    out_row: int,
    threads: int,
) -> None: ...
def weighted_sum(
    set: str, bfloat16: bool, n: int, K: int, H: int, rows: int, at: int, weights: int, out: int, threads: int
) -> None: ...
