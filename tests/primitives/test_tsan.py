"""The native core under ThreadSanitizer: clean as it is, and the same test finds a race that is put into it."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "asaplab" / "primitives" / "native"


def run(tmp_path, *flags):
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler here")
    # without -fno-builtin small memcpys become plain moves that the sanitizer does not see as one access
    command = ["g++", "-std=c++17", "-O1", "-g", "-fsanitize=thread", "-fno-builtin", "-pthread", f"-I{NATIVE}", *flags]
    program = tmp_path / "tsan"
    built = subprocess.run(
        [*command, str(HERE / "tsan.cpp"), str(NATIVE / "core.cpp"), "-o", str(program)], capture_output=True, text=True
    )
    if "cannot find" in built.stderr and "tsan" in built.stderr:
        pytest.skip("this compiler has no ThreadSanitizer")
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=200)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("ThreadSanitizer cannot run with this kernel's address layout")
    return done


@pytest.mark.slow
def test_the_native_core_has_no_data_race(tmp_path):
    done = run(tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "clean"), done.stderr[:3000]


@pytest.mark.slow
def test_the_sanitizer_sees_flags_without_order(tmp_path):
    orders = ("RELEASE", "ACQUIRE", "SEQ_CST")  # bells order what the flags no longer do
    unordered = [f"-D__ATOMIC_{order}=__ATOMIC_RELAXED" for order in orders]
    done = run(tmp_path, *unordered, "-Wno-builtin-macro-redefined")
    assert "data race" in done.stderr
