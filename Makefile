# One command is the whole check: `make test`. It needs make and Python 3.11 or newer, nothing else; the first run fetches
# the tools from the package index, later ones work without a network.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# The tests run on every one of these that the machine has, each in an environment of its own.
OTHER_PYTHONS := 3.12 3.13 3.14
# Folders of ours that hold Python.
CODE := $(wildcard src tests typing_tests benchmarks examples)
# Passed on to pytest: make unit ARGS='tests/unit -k timer'
ARGS ?=
# Pyright runs on the Node that came with it from the package index, never on another.
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup lint types unit caches others test demo soak bench bench-peers clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | column -t -s @ 2>/dev/null || grep '##' Makefile

# An environment is made once and kept; it is brought up to date when pyproject.toml says something else than it did then
# (by content, since a checkout changes file times). Without build isolation, that asks the index only for what is missing.
define environment
	@if ! $(1)/bin/python -c pass 2>/dev/null; then \
		python=$$(.ci/python $(2)) || exit 1; \
		echo "Making $(1) with $$python"; \
		rm -rf $(1) && $$python -m venv $(1); \
	fi
	@if ! cmp -s pyproject.toml $(1)/installed.toml; then \
		rm -f $(1)/installed.toml; \
		$(1)/bin/python -m pip install --quiet 'hatchling>=1.26,<2' 'editables>=0.5,<1' && \
		$(1)/bin/python -m pip install --quiet --no-build-isolation --editable '.[$(3)]' && \
		cp pyproject.toml $(1)/installed.toml; \
	fi
endef

setup: ## Make .venv with Perdure and all tools
	$(call environment,$(VENV),,dev)

# Import arrows without the cache: it keeps what an import meant before the module it names was there.
lint: setup ## Style, format, import arrows
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-logo --no-cache

types: setup ## mypy and pyright, both strict
	$(BIN)/mypy $(CODE)
	$(BIN)/pyright $(filter src typing_tests,$(CODE))

unit: setup ## The tests, on one Python
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# The behaviours must be the same however parked instances are kept: all of them (as above), none, or some by chance. That is
# the engine's affair: two stores will do.
define caches
	@for cache in 0 random; do \
		echo "Behaviours, PERDURE_TEST_CACHE=$$cache:"; \
		PERDURE_TEST_CACHE=$$cache $(1)/bin/python -m pytest -q -n auto --dist worksteal -k 'not postgres' tests/behaviours || exit 1; \
	done
endef

caches: setup ## The behaviours, without the instance cache and with one that forgets
	$(call caches,$(VENV))

others: $(OTHER_PYTHONS:%=python-%) ## The tests, on every other Python of this machine

.PHONY: $(OTHER_PYTHONS:%=python-%)
$(OTHER_PYTHONS:%=python-%): python-%:
	@if [ "$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = $* ]; then \
		echo "Python $*: is that of $(VENV)"; \
	elif .ci/python $* >/dev/null; then \
		$(MAKE) --no-print-directory on-$*; \
	else \
		echo "Python $*: not on this machine"; \
	fi

on-%:
	$(call environment,$(VENV)-$*,$*,test)
	@echo "Python $*:"
	PERDURE_TEST_POSTGRES_ONE=1 $(VENV)-$*/bin/python -m pytest -n auto --dist worksteal $(ARGS)
	$(call caches,$(VENV)-$*)

test: lint types unit caches others ## Everything

demo: setup ## Index the standard library, kill the worker part way, finish all the same
	$(BIN)/perdure demo

soak: setup ## The crash test on PostgreSQL with 20,000 runs: workers killed and paused, connections and the server cut off
	$(BIN)/python -m tests.crash.soak $(ARGS)

bench: setup ## Measure, print, and write build/bench.json
	$(BIN)/python -m benchmarks

bench-peers: ## The same on DBOS, side by side, in an environment of its own
	$(call environment,$(VENV)-peers,,peers)
	$(VENV)-peers/bin/python -m benchmarks.peers $(ARGS)

clean: ## Remove what was made, environments too
	rm -rf $(VENV) $(VENV)-3.* $(VENV)-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
