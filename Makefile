# `make demo` and `make test` do all their set-up: a virtual environment in .venv, made again when pyproject.toml changes.
# There is no cuDNN in it; `make test-cudnn` has an environment of its own, .venv-cudnn, which differs in that.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CUDNN_VENV := .venv-cudnn
# What cuDNN could change: sessions, options and loading, and the families that it has something for.
SUITE ?= tests/unit $(patsubst %,tests/interpreter/test_%.py,convolution pooling lrn recurrent attention)
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
RAPIDOCR := rapidocr-onnxruntime==1.4.4
PIP := -m pip --disable-pip-version-check
CHECKED := src tests demo tools bench

# One thread for each of the test processes: they already share the cores.
PYTEST := -m pytest -n $(JOBS) --dist worksteal
# $(call run_tests,environment,whether cuDNN is in it,paths): Triton either interprets or compiles in one process, hence
# two. The second runs even when the first fails. tests/unit/cudnn/test_legs.py holds the environment to what CUDNN_LEG says.
define run_tests
@echo '== kernels and models in the interpreter, then everything else; cuDNN: $(2)'
@export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 CUDNN_LEG=$(2); status=0; \
TRITON_INTERPRET=1 $(1)/bin/python $(PYTEST) -m interpreter $(3) || status=$$?; \
$(1)/bin/python $(PYTEST) -m 'not interpreter and not gpu' $(3) || status=$$?; \
exit $$status
endef

.PHONY: help demo test test-cudnn lint format gpu gpu-proof clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    read the text in demo/receipt.png, every model run by Gossamer'
	@echo 'make test    all tests that need no GPU, where no cuDNN is installed; the first time downloads 3 GB for them'
	@echo 'make test-cudnn   what cuDNN could change, where it is installed; SUITE=tests: all tests'
	@echo 'make lint    ruff and mypy'
	@echo 'make format  ruff, rewriting'
	@echo 'make gpu     the tests that need a GPU; GOSSAMER_PYTHON=python3 runs them with that Python as it is'
	@echo 'make gpu-proof   all that only a GPU can show: these tests without cuDNN, with it and with it disabled, under'
	@echo '                 the sanitizer, and benchmarks; GOSSAMER_PYTHON names a Python that has PyTorch, ONLY=leg a part'
	@echo 'make clean   remove both environments and everything that was built'

demo: $(VENV)/demo.stamp
	@$(BIN)/python tests/models/fetch.py rapidocr-onnxruntime >/dev/null
	@$(BIN)/python demo/read_text.py

# What tests/cudnn opens are copies in the cache, by their paths: the environment stays without.
test: $(VENV)/test.stamp
	@echo '== models and releases of cuDNN: SHA-256 of each, downloaded once'
	$(BIN)/python tests/models/fetch.py || test "$$GOSSAMER_STRICT" != 1
	$(BIN)/python tests/cudnn_wheels.py || test "$$GOSSAMER_STRICT" != 1
	$(call run_tests,$(VENV),absent,)

test-cudnn: $(CUDNN_VENV)/test.stamp
	$(call run_tests,$(CUDNN_VENV),installed,$(SUITE))

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

# What ended well is not done again; build/proof has logs, rows and a summary. PyTorch is for some tests and benchmarks.
gpu-proof: $(if $(GOSSAMER_PYTHON),,$(CUDNN_VENV)/test.stamp)
	$(or $(GOSSAMER_PYTHON),$(CUDNN_VENV)/bin/python) tools/prove_on_gpu.py build/proof --only '$(ONLY)'

clean:
	rm -rf $(VENV) $(CUDNN_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
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
	@$(BIN)/python $(PIP) install --quiet --editable '.[compile,cpu,demo]'
	@$(BIN)/python $(PIP) install --quiet --no-deps --ignore-requires-python $(RAPIDOCR)
	@touch $@

$(VENV)/test.stamp: $(VENV)/demo.stamp
	@$(BIN)/python $(PIP) install --quiet --editable '.[compile,cpu,demo,dev]'
	@touch $@

$(CUDNN_VENV)/test.stamp: $(VENV)/python.stamp pyproject.toml
	@echo 'Installing into $(CUDNN_VENV), once ...'
	@$(PYTHON) -m venv --clear $(CUDNN_VENV)
	@$(CUDNN_VENV)/bin/python $(PIP) install --quiet --editable '.[compile,cpu,cudnn,demo,dev]'
	@$(CUDNN_VENV)/bin/python $(PIP) install --quiet --no-deps --ignore-requires-python $(RAPIDOCR)
	@touch $@
