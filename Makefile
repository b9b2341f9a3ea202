# `make demo` and `make test` do all their set-up: a virtual environment in .venv, made again when pyproject.toml changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
RAPIDOCR := rapidocr-onnxruntime==1.4.4
PIP := $(BIN)/python -m pip --disable-pip-version-check
CHECKED := src tests demo tools bench

# One thread for each of the test processes: they already share the cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: help demo test lint format gpu clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    read the text in demo/receipt.png, every model run by Gossamer'
	@echo 'make test    all tests that need no GPU'
	@echo 'make lint    ruff and mypy'
	@echo 'make format  ruff, rewriting'
	@echo 'make gpu     the tests that need a GPU; GOSSAMER_PYTHON=python3 runs them with that Python as it is'
	@echo 'make clean   remove .venv and everything that was built'

demo: $(VENV)/demo.stamp
	@$(BIN)/python tests/models/fetch.py rapidocr-onnxruntime >/dev/null
	@$(BIN)/python demo/read_text.py

# Triton either interprets or compiles in one process, hence two. The second runs even when the first fails.
test: $(VENV)/test.stamp
	@echo '== models: SHA-256 of each, downloaded once'
	$(BIN)/python tests/models/fetch.py || test "$$GOSSAMER_STRICT" != 1
	@echo '== kernels and models in the interpreter, then everything else'
	@status=0; \
	TRITON_INTERPRET=1 $(PYTEST) -n $(JOBS) --dist worksteal -m interpreter || status=$$?; \
	$(PYTEST) -n $(JOBS) --dist worksteal -m 'not interpreter and not gpu' || status=$$?; \
	exit $$status

lint: $(VENV)/test.stamp
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

ifdef GOSSAMER_PYTHON
gpu:
	GOSSAMER_STRICT=1 PYTHONPATH=src $(GOSSAMER_PYTHON) -m pytest -m gpu tests/gpu
else
gpu: $(VENV)/test.stamp
	GOSSAMER_STRICT=1 $(BIN)/python -m pytest -m gpu tests/gpu
endif

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/python.stamp:
	@command -v $(PYTHON) >/dev/null || { echo 'No $(PYTHON) here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Gossamer needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	{ echo '$(PYTHON) cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv'; exit 1; }
	@echo 'Making a virtual environment in $(VENV) ...'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# rapidocr-onnxruntime: pyproject.toml says why it is installed this way.
$(VENV)/demo.stamp: $(VENV)/python.stamp pyproject.toml
	@echo 'Installing into $(VENV), once ...'
	@$(PIP) install --quiet --editable '.[compile,cpu,demo]'
	@$(PIP) install --quiet --no-deps --ignore-requires-python $(RAPIDOCR)
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	@$(PIP) install --quiet --editable '.[compile,cpu,demo,dev]'
	@touch $@
