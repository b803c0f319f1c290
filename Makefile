# Everything a user or a developer runs. `make demo` and `make test` need Python 3.11+ and make alone:
# they create .venv and install the versions of constraints.txt into it.
#
#   PYTHON=...   the interpreter to use (default: the first of python3.12, python3.11, python3 that
#                is 3.11 or later)
#   NO_VENV=1    install nothing: run PYTHON with the packages it has, importing this checkout
#   ARGS=...     more arguments for pytest, for the demo or for the proofs
#   DEVICE=...   what the proofs run on: auto, cuda or host (default: auto)
#   TOOL=...     of compute-sanitizer, for gpu-sanitize: memcheck, racecheck, initcheck or synccheck
#                (default: all four)

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

VENV ?= .venv
ARGS ?=
DEVICE ?= auto
TOOL ?=
LAYERS := guards kernels stages trainer
INSTALL_INPUTS := pyproject.toml setup.py constraints.txt

ifeq ($(strip $(NO_VENV)),)
  PY := $(VENV)/bin/python
  ONEGRAPH := $(VENV)/bin/onegraph
  RUNTIME := $(VENV)/.installed-runtime
  DEV := $(VENV)/.installed-dev
else
  PY := PYTHONPATH=$(CURDIR)/.types$${PYTHONPATH:+:$$PYTHONPATH} $(or $(PYTHON),python3)
  ONEGRAPH := $(PY) -P -c 'import sys; from onegraph.trainer.cli import main; sys.exit(main())'
  RUNTIME := types
  DEV := types
endif

# -P keeps the checkout itself off sys.path: `import kernels` must fail here as it does for a user.
PYTEST := $(PY) -P -m pytest

.PHONY: help demo test quick check format docs types browser gpu-test gpu-sanitize gpu-bench \
  bench proofs soak clean

help:
	@echo "make demo       train on the shipped market sample on the CPU, all stages on"
	@echo "make test       the tests that CI runs"
	@echo "make quick      the tests but the slow ones: two to three minutes"
	@echo "make check      ruff, formatting, mypy, and the guards on this repository"
	@echo "make format     let ruff mend and format what it can"
	@echo "make browser    install Debian's chromium (as root), for the tests that open the report"
	@echo "make docs       the pages that are generated: one for each rule of the guards"
	@echo "make gpu-test   the tests that need a GPU; fails without one"
	@echo "make gpu-sanitize  a few of them under compute-sanitizer's tools"
	@echo "make gpu-bench  time the stages, and other libraries, on a GPU"
	@echo "make bench      time the stages on the CPU"
	@echo "make proofs     train on tasks whose right answer is known (ARGS='cartpole --jobs 3')"
	@echo "make soak       the tests that are too slow for CI"
	@echo "make clean      remove the environment, caches and build outputs"

demo: $(RUNTIME)
	@$(ONEGRAPH) demo $(ARGS)

# The benchmarks run here once each, untimed, so that they do not rot.
test: $(DEV)
	@$(PYTEST) -n 2 --benchmark-disable -o norecursedirs=".* build" tests $(ARGS)

quick: $(DEV)
	@$(PYTEST) -n 2 --benchmark-disable -m "not slow and not gpu and not soak" tests $(ARGS)

check: $(DEV) types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy -p onegraph
	@$(PY) -P -m onegraph.guards check

format: $(DEV)
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

# Without it those tests skip by name.
browser:
	@if [ -x /usr/bin/chromium ]; then echo "/usr/bin/chromium is there"; \
	else apt-get install -y --no-install-recommends chromium fonts-dejavu-core; fi

docs: $(DEV)
	@$(PY) -P -m onegraph.guards.docs docs/rules

gpu-test: $(DEV)
	@ONEGRAPH_REQUIRE_GPU=1 $(PYTEST) -m "gpu and not soak" tests/gpu $(ARGS)

gpu-sanitize: $(DEV)
	@$(PY) -P tests/sanitize.py $(TOOL) $(ARGS)

# Columns of pytest-benchmark's tables, which list every benchmark.
BENCH := --benchmark-columns=median,iqr,rounds,iterations

# The stages beside the peers that are installed (PyTorch, JAX), at every size; then the phases.
gpu-bench: $(DEV)
	@ONEGRAPH_REQUIRE_GPU=1 $(PYTEST) -m gpu tests/bench $(BENCH) $(ARGS)
	@$(ONEGRAPH) bench --device cuda --size M --phases

bench: $(DEV)
	@$(PYTEST) -m "not gpu" tests/bench $(BENCH) $(ARGS)

# Minutes on a GPU, an hour without; `onegraph prove --list` says what they are.
proofs: $(DEV)
	@$(ONEGRAPH) prove --device $(DEVICE) $(ARGS)

soak: $(DEV)
	@$(PYTEST) -m soak tests $(ARGS)

# The import layout as a tree of symlinks, for tools that do not follow an editable install.
types: $(LAYERS:%=.types/onegraph/%)

.types/onegraph/%:
	@mkdir -p $(@D)
	@ln -sfn ../../$* $@

$(VENV)/bin/python:
	@base=''; \
	for candidate in $(or $(PYTHON),python3.12 python3.11 python3); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    base=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$base" ]; then \
	  echo "error: none of '$(or $(PYTHON),python3.12 python3.11 python3)' is a working Python 3.11 or later; install one, or name it: make PYTHON=/path/to/python" >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$base ($$("$$base" --version))"; \
	"$$base" -m venv $(VENV)

# Stamps, so that a second run starts at once; pyproject.toml, setup.py and constraints.txt renew them.
$(VENV)/.installed-runtime: $(INSTALL_INPUTS) | $(VENV)/bin/python
	@echo "installing onegraph into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(INSTALL_INPUTS) | $(VENV)/bin/python
	@echo "installing onegraph and its development tools into $(VENV)"
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.installed-runtime $@

clean:
	rm -rf $(VENV) .types build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .guards_cache .hypothesis .benchmarks
	find $(LAYERS) tests -name __pycache__ -type d -prune -exec rm -rf {} +
