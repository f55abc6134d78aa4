"""What loading a package loads: ``import asaplab`` nothing, device processes no figures, notebooks or compilers."""

import subprocess
import sys

import pytest

HEAVY = ("plotly", "jupyter_core", "IPython", "ipywidgets", "anywidget", "numba", "bokeh", "papermill", "nbformat")


def loaded_by(statement: str) -> set[str]:
    """The top-level modules in memory after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing():
    loaded = loaded_by("import asaplab; dir(asaplab)")
    assert not loaded & {"numpy", "torch", "distributed", "dask", "pyarrow", *HEAVY}


def test_the_figures_load_plotly_only_when_one_is_asked_for():
    assert "plotly" not in loaded_by("import asaplab.show")
    assert "plotly" in loaded_by("import asaplab.show; asaplab.show.gantt")


@pytest.mark.parametrize(
    "package", ["core", "scheduler", "workload", "observe", "profiles", "superkernel", "models", "engine.plugin"]
)
def test_what_devices_load_is_small(package):  # engine.plugin is what a worker process loads
    assert not loaded_by(f"import asaplab.{package}") & set(HEAVY)


@pytest.mark.parametrize("package", ["core", "scheduler", "profiles"])
def test_scheduling_needs_neither_torch_nor_dask(package):
    assert not loaded_by(f"import asaplab.{package}") & {"torch", "distributed", "pyarrow", *HEAVY}


def test_a_wrong_name_is_an_attribute_error():
    import asaplab

    with pytest.raises(AttributeError, match="has no attribute 'warp'"):
        _ = asaplab.warp
