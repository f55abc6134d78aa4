"""Where there is a compiler the native parts were built: a mistake in them must not hide behind the fallback."""

import importlib
import os
import shutil

import pytest


@pytest.mark.parametrize(
    "module", ["asaplab.primitives._core", "asaplab.superkernel._kernels", "asaplab.models._attention"]
)
def test_native_modules_were_built(module):
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None or shutil.which(compiler.split()[0]) is None:
        pytest.skip("no C++ compiler here: the fallbacks serve")
    assert importlib.import_module(module).ABI > 0
