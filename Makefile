# `make sweep` and `make test` need Python 3.11, pip and make; they set up everything else in .venv.
PYTHON ?= python3
SPACE  ?= search_spaces/retrieval.yaml
VENV   := .venv
BIN    := $(VENV)/bin
CUDA   ?=
JOBS   ?=
# Two more than the cores of a small machine, for some tests mostly wait: 675 s with 4 workers, 737 s with 3.
WORKERS ?= 4
# How often a test that fails runs again; those that needed it are listed.
RERUNS ?= 0
EXTRAS := $(if $(CUDA),cuda$(CUDA)) $(if $(JOBS),jobs)
LOCKED := requirements/locked.txt $(EXTRAS:%=requirements/locked-%.txt)
STAMP  := $(VENV)/.ready$(subst $() ,,$(EXTRAS:%=-%))

# Without stored byte code every process compiles the thousands of modules that it imports: 17 s instead of 6.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup client sweep ui up down test test-fast test-share bytecode test-slow test-simulation test-mutants test-units test-torch test-faults check results docs tour format declarations lock packages clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## Make the environment in .venv (CUDA=13: JAX for NVIDIA GPUs; JOBS=1: `ray job`, its dashboard)

# uv comes as a locked package. On a busy machine it took 19 s with an empty cache and 10 s with a full one, where three pips
# side by side took 202 s and raced for setuptools. It compiles no byte code: Python compiles the modules that are imported, a
# fifth of the 20,000. It does not read pip's configuration, so the index and the certificates that pip is configured with are
# passed on. --quiet hides a line for each package, -qq pip's warnings about its own configuration; both print errors. The locked
# files name every dependency.
UV = configured() { $(BIN)/python -m pip config list 2>/dev/null | sed -En "s/^(global|install)\.$$1='(.*)'$$/\2/p" | tail -n 1; }; \
  index=$${UV_DEFAULT_INDEX:-$${UV_INDEX_URL:-$${PIP_INDEX_URL:-$$(configured index-url)}}}; \
  certificates=$${SSL_CERT_FILE:-$${PIP_CERT:-$$(configured cert)}}; \
  env $${index:+UV_DEFAULT_INDEX="$$index"} $${certificates:+SSL_CERT_FILE="$$certificates"} $(BIN)/uv --no-config pip

$(STAMP): $(LOCKED) requirements/uv.txt pyproject.toml
	@echo "Installing $(LOCKED) into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements/uv.txt
	@$(UV) install --quiet --python $(BIN)/python --no-deps --require-hashes $(LOCKED:%=-r %)
	@$(UV) install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

client: $(STAMP)  ## Build the wheel of the client into build/client, for machines that only submit and look
	@$(BIN)/python release/client.py build/client
	@ls build/client/*.whl

sweep: $(STAMP)  ## Run a sweep (SPACE=search_spaces/retrieval.yaml)
	@$(BIN)/python -m orchestrator.sweep $(SPACE)

ui: $(STAMP)  ## Serve MLflow on 127.0.0.1:5000
	@$(BIN)/python -m orchestrator.sweep ui

up: $(STAMP)  ## Start PostgreSQL and an MLflow server with users, for a small group, on this machine alone
	@cluster/stores.sh up

down:  ## Stop them; their data stays in stores/
	@cluster/stores.sh down

# The seeds of the simulation come first, on every core: beside other tests each takes twice the time. What the tests compile
# is kept in .venv/compilations, so that the next run only reads it. The tests that start Ray come first and stay with one
# worker, whose Ray they share.
TESTS := -n $(WORKERS) --dist worksteal --reruns $(RERUNS) -rR

test: $(STAMP) packages  ## Run every test that can run here, except the slow ones (WORKERS=4; RERUNS=0)
	@$(BIN)/python -m tests.simulation 0 --counts short=2000 promotion=100 ending=50 request=50 lending=2000
	@$(BIN)/python -m pytest $(TESTS) -m "not slow" tests

test-fast: $(STAMP)  ## Run the tests that need neither Ray nor other servers, and 200 seeds (FOLDERS=tests)
	@$(BIN)/python -m tests.simulation 0 --counts short=100 lending=100
	@$(BIN)/python -m pytest $(TESTS) -m "not slow and not ray and not end_to_end and not server" $(or $(FOLDERS),tests)

bytecode: $(STAMP)  ## Compile what the tests import once, before several workers would each do so
	@$(BIN)/python -m pytest --collect-only -qq -m "not slow" tests >/dev/null

test-slow: $(STAMP) packages  ## Run the tests that take longer (JOBS=1: those of `ray job submit` too)
	@$(BIN)/python -m pytest -m slow tests
	@XLA_FLAGS= $(BIN)/python -m pytest tests/trainables/engine tests/trainables/test_replay.py

# The number of commits chooses the share, so that 16 landings run all: all at once take four hours on two cores.
SHARE ?= $(shell echo $$(($$(git rev-list --count HEAD 2>/dev/null || echo 0) % 16 + 1)))/16

test-share: $(STAMP) packages  ## Run a part of the slow tests, which the number of commits chooses (SHARE=3/8; WORKERS=4; RERUNS=0)
	@echo "Share $(SHARE) of the slow tests, and further seeds of the simulation"
	@$(BIN)/python -m tests.simulation $(firstword $(subst /, ,$(SHARE)))000 --counts promotion=100 ending=50 request=50
	@$(BIN)/python -m pytest $(TESTS) -m slow --share $(SHARE) tests

test-simulation: $(STAMP)  ## Run simulated sweeps under faults (SEEDS=100000; FIRST=0; SIZE=short)
	@$(BIN)/python -m tests.simulation $(or $(FIRST),0) --count $(or $(SEEDS),2000) --size $(or $(SIZE),long)

test-mutants: $(STAMP)  ## Show that the simulation notices planted defects (an hour)
	@$(BIN)/python -m tests.simulation.mutants

test-units: $(STAMP) packages  ## Run cluster/ under a real systemd and Slurm, and check it with the schemas of Kubernetes, all installed (root; ten minutes)
	@missing=; \
	test -x /lib/systemd/systemd && command -v dbus-daemon >/dev/null || missing="systemd dbus"; \
	command -v slurmctld >/dev/null && command -v munged >/dev/null || missing="$$missing slurm-wlm munge"; \
	test -z "$$missing" || { echo "Installing $$missing" && apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends $$missing >/dev/null; }
	@test -d build/kubernetes-validate || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --target build/kubernetes-validate kubernetes-validate==1.37.0
	@$(BIN)/python -m pytest -n 0 tests/cluster

# PyTorch's build for processors, 200 MB, is in an environment of its own: no locked file has it.
test-torch: $(STAMP)  ## Run the tests of scripts with PyTorch, which is installed into build/torch
	@test -x build/torch/bin/python || $(BIN)/python -m venv build/torch
	@build/torch/bin/python -m pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0 numpy
	@SWEEP_TEST_TORCH=$(CURDIR)/build/torch/bin/python $(BIN)/python -m pytest -n 0 \
	  tests/orchestrator/scripts/test_torch_checkpoint.py tests/end_to_end/test_trainables.py -k "torch or PyTorch"

test-faults: $(STAMP) packages  ## Inject every fault of docs/faults.md into real sweeps (an hour; FAULTS="kills mlflow" for some)
	@$(BIN)/python -m pytest -m slow tests/orchestrator/config/test_fuzz.py
	@$(BIN)/python -m benchmarks.faults $(FAULTS)

check: $(STAMP)  ## Lint, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

results: $(STAMP)  ## Write docs/results.md from the results in docs/experiments
	@$(BIN)/python -m orchestrator.sweep experiment --index docs/experiments

docs: $(STAMP)  ## Build the site into build/site; a broken link is an error
	@$(BIN)/python -m sphinx -W -q docs build/site

tour: $(STAMP)  ## Execute docs/tour.ipynb again
	@$(BIN)/python docs/execute.py

format: $(STAMP)  ## Correct formatting and import order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Debian's packages that tests need, by the program that each provides. RUNLEVEL=1 keeps apt from starting their servers.
packages:  ## Install what some tests need (browser, PostgreSQL, sshd, a C compiler), if apt-get is available
	@missing=; \
	command -v chromium >/dev/null && command -v chromedriver >/dev/null || missing="$$missing chromium chromium-driver"; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	test -x /usr/sbin/sshd || missing="$$missing openssh-server"; \
	command -v rsync >/dev/null || missing="$$missing rsync"; \
	command -v ip >/dev/null || missing="$$missing iproute2"; \
	command -v shellcheck >/dev/null || missing="$$missing shellcheck"; \
	test -z "$$missing" || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing$$missing" \
	  && apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	     apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } \
	  || echo "Not installed, so their tests are skipped:$$missing"

COMPILE = $(UV) compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q

declarations: $(STAMP)  ## Write the generated declarations of layers, samplers and schedulers again
	@$(BIN)/python -m trainables.declare trainables.layers:LAYERS
	@$(BIN)/python -m trainables.declare orchestrator.config.strategy:SAMPLERS orchestrator.config.strategy:SCHEDULERS

lock: $(STAMP)  ## Resolve requirements/*.txt again
	@$(COMPILE) pyproject.toml --extra dev -o requirements/locked.txt
	@$(COMPILE) pyproject.toml --extra cuda13 -c requirements/locked.txt -o requirements/locked-cuda13.txt
	@$(COMPILE) pyproject.toml --extra jobs -c requirements/locked.txt -o requirements/locked-jobs.txt
	@echo "uv==$$($(BIN)/uv --version | cut -d ' ' -f 2)" | $(COMPILE) - -o requirements/uv.txt

clean:  ## Remove the environment (never mlruns/ or data/)
	rm -rf $(VENV)
