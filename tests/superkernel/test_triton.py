"""The Triton kernel without a GPU: run by the interpreter, and compiled for sm_90, each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="triton is not installed"),
]
ROOT = Path(__file__).parents[2]
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton.language as tl
from asaplab.superkernel import gpu

pointers = dict(x_at="*bf16", x_stride="i32", offsets_at="*i64", layer_at="*i64", addresses_at="*i64", out_at="*bf16",
                out_stride="i32")
for gated, N, K in ((True, 768, 2048), (False, 2048, 768)):
    constants = dict(LAYERS=48, EXPERTS=16, N=N, K=K, GATED=gated, TYPE=tl.bfloat16, ALIGNED=16,
                     BM=gpu.ROWS, BN=gpu.COLUMNS, BK=gpu.DEPTH, WIDEN=gpu.INTERPRETED)
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}
    source = ASTSource(fn=gpu.grouped_linear, signature=pointers | dict.fromkeys(constants, "constexpr"),
                       constexprs=constants, attrs=aligned)
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=4, num_stages=3))
    ptx = kernel.asm["ptx"]
    assert kernel.asm["cubin"][:4] == b"\\x7fELF"
    print("tensor cores:", "wgmma" in ptx, "asynchronous copies:", "cp.async" in ptx, "scalar:", "ld.global.b16" in ptx)
"""


def run(*command: str, interpret: bool, tmp_path: Path) -> str:
    environment = os.environ | {
        "TRITON_INTERPRET": str(int(interpret)),
        "TRITON_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_interpreter_agrees_with_the_oracle(tmp_path: Path) -> None:
    out = run(
        "-m", "pytest", "-p", "no:cacheprovider", "tests/superkernel/triton_cases.py", interpret=True, tmp_path=tmp_path
    )
    assert "8 passed" in out


def test_it_compiles_for_sm_90_without_a_gpu(tmp_path: Path) -> None:
    out = run("-c", COMPILE, interpret=False, tmp_path=tmp_path)
    assert out.splitlines() == ["tensor cores: True asynchronous copies: True scalar: False"] * 2
