# Two commands are enough: `make run` and `make test`. Everything is installed into .venv with pip.
PYTHON ?= python3
CONSTRAINTS ?= constraints-ci.txt
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS)
SOURCES := pyproject.toml CMakeLists.txt $(CONSTRAINTS) $(shell find asaplab -path '*/native/*' -type f)

.PHONY: install run lab test check docs bench constraints

install: .venv/installed

# with the tools or without them, the native parts are built once
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "asaplab needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

.venv/installed: $(SOURCES) | $(BIN)/python
	@echo "installing asaplab into .venv (a few minutes the first time)"
	$(PIP) -e .
	@touch $@

.venv/installed-dev: $(SOURCES) | $(BIN)/python
	@echo "installing asaplab and its tools into .venv (a few minutes the first time)"
	$(PIP) -e '.[dev]'
	@touch .venv/installed $@

# the quickstart notebook through papermill on Dask; prints its table and where the report lies
run: install
	$(BIN)/asaplab reproduce --only 01 --out runs/quickstart

lab: install
	$(BIN)/asaplab lab

# browser tests skip themselves where there is no Chromium; tests marked gpu need a CUDA device
test: .venv/installed-dev
	$(BIN)/python -m pytest -m 'not gpu'

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the gallery is the notebooks as they run here and now
docs: .venv/installed-dev
	PLOTLY_RENDERER=notebook $(BIN)/asaplab reproduce --scale smoke --out docs/_build/batch
	rm -rf docs/gallery && mkdir -p docs/gallery && cp docs/_build/batch/*/[0-9][0-9]_*.ipynb docs/gallery/
	$(BIN)/python -m sphinx -b html -W --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

# about two hours; TRACES="--trace FILE ..." takes the engine's prompt lengths from traces
bench: install
	$(BIN)/asaplab bench primitives --out docs/benchmarks
	$(BIN)/asaplab bench superkernel --out docs/benchmarks
	$(BIN)/asaplab bench attention --out docs/benchmarks
	$(BIN)/asaplab bench twin --out docs/benchmarks
	$(BIN)/asaplab bench engine --out docs/benchmarks $(TRACES)
	$(BIN)/python docs/benchmarks.py

# after a deliberate update of the packages in .venv; triton is left to torch, which pins its own
constraints: .venv/installed-dev
	$(PIP) -e '.[dev,mpi]'
	$(BIN)/python -m pip list --format=freeze --exclude-editable --disable-pip-version-check \
	  | sed -e 's/+cpu$$//' | grep -v -E '^(asaplab|pip|setuptools|triton)==' > $(CONSTRAINTS)
