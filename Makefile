# Everything that is done with this repository, by name. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON_ENV := .venv/bin
PYTEST := $(PYTHON_ENV)/python -m pytest
# What the targets below take as arguments, for example: make sim SEED=17, make bench ARGS="--only consume"
SEED ?=
COUNT ?= 1
KILLS ?= 200
ARGS ?=

.PHONY: help
help: ## list what can be done
	@printf 'make TARGET, where TARGET is one of\n\n'
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | while IFS='|' read -r name text; do printf '\033[1m%-14s\033[0m %s\n' "$$name" "$$text"; done
	@printf '\nNew here? make run shows the whole of it; README.md says in which order to read the source.\n'

.PHONY: setup
setup: ## make .venv with everything, hot modules compiled; quick when nothing changed
	@tools/setup

.PHONY: run
run: ## the main job: 336,776 real flights through the broker, a kill -9, into Parquet, and proved complete
	@tools/setup --require-java
	@$(PYTHON_ENV)/python -m examples.flights $(ARGS)

.PHONY: test
test: setup ## unit tests compiled, those of the hot modules uncompiled as well, then simulated worlds
	@printf '\n== unit tests, %s\n' "$$($(PYTHON_ENV)/python -c 'from polymq import _build; print(_build.report())')"
	@$(PYTEST) tests/unit tests/project tests/upgrade $(ARGS)
	@$(MAKE) test-pure
	@$(MAKE) test-sim

.PHONY: test-pure
test-pure: ## the unit tests of the hot modules, uncompiled
	@printf '\n== unit tests of the hot modules, %s\n' "$$(POLYMQ_PURE=1 $(PYTHON_ENV)/python -c 'from polymq import _build; print(_build.report())')"
	@POLYMQ_PURE=1 $(PYTEST) $$($(PYTHON_ENV)/python tests/project/layout.py) $(ARGS)

.PHONY: test-sim
test-sim: ## some hundred simulated worlds, and the planted bugs that they must find
	@printf '\n== simulated worlds\n'
	@$(PYTEST) tests/sim --timeout 900 $(ARGS)

.PHONY: test-spark
test-spark: ## the Spark source (needs Java 17)
	@tools/setup --require-java
	@$(PYTEST) tests/spark --timeout 300 $(ARGS)

.PHONY: sim
sim: setup ## replay one simulated world and print what happened: SEED=17; or try more: SEED=1000 COUNT=500
	@test -n '$(SEED)' || { echo 'which one? make sim SEED=17 (a failing test prints its seed)' >&2; exit 2; }
	@$(PYTHON_ENV)/python -m polymq.testing.simulate --seed $(SEED) --count $(COUNT) $(if $(filter 1,$(COUNT)),--verbose) $(ARGS)

.PHONY: check
check: setup ## format, lint, types, import contracts and house rules
	@$(PYTHON_ENV)/ruff format --check .
	@$(PYTHON_ENV)/ruff check .
	@$(PYTHON_ENV)/mypy
	@$(PYTEST) tests/project

.PHONY: format
format: setup ## let ruff format and fix what it can
	@$(PYTHON_ENV)/ruff format .
	@$(PYTHON_ENV)/ruff check --fix .

.PHONY: interop
interop: setup ## real clients (pynsq, ansq, gnsq, go-nsq, nsqjs, PHP, nats-py, nats.go, RocketMQ's) and servers against polymq; writes docs/CLIENTS.md again, or compares it if CI is set
	@peers/build.sh
	@POLYMQ_CLIENTS_TABLE=$(if $(CI),compare,write) $(PYTEST) tests/interop --timeout 300 -r fER $(ARGS)

.PHONY: matrix
matrix: setup ## every protocol to every other and to Spark, 10,000 messages each, over a kill -9; one group by two protocols (needs Java 17)
	@tools/setup --require-java
	@$(PYTEST) tests/interop/test_matrix*.py --timeout 300 -r fER $(ARGS)

.PHONY: bench
bench: setup ## polymq beside nsqd, nats-server and RocketMQ's brokers, on this machine, now
	@peers/build.sh nsq nats nats-2.9 rocketmq
	@$(PYTHON_ENV)/python -m bench $(ARGS)

.PHONY: crash
crash: setup ## kill -9 under load, again and again, and check what was promised: KILLS=200
	@$(PYTHON_ENV)/python -m tests.crash --kills $(KILLS) $(ARGS)

.PHONY: crash-spark
crash-spark: setup ## kill a streaming query, its workers and the broker, and compare tables with what was acknowledged: KILLS=50 (needs Java 17)
	@tools/setup --require-java
	@$(PYTHON_ENV)/python -m tests.crash.spark --kills $(KILLS) $(ARGS)

.PHONY: fuzz
fuzz: setup ## the decoders, built with bounds checks, against random and damaged input
	@tools/fuzz $(ARGS)

.PHONY: coverage
coverage: setup ## unit tests with branch coverage, uncompiled (compiled modules cannot be measured)
	@$(PYTHON_ENV)/coverage erase
	@POLYMQ_PURE=1 $(PYTHON_ENV)/coverage run -m pytest tests/unit $(ARGS)
	@$(PYTHON_ENV)/coverage combine --quiet
	@$(PYTHON_ENV)/coverage report

.PHONY: example
example: setup ## write polymq.example.toml again
	@$(PYTHON_ENV)/python -c 'from polymq import config; print(config.example(), end="")' >polymq.example.toml

.PHONY: conversions
conversions: setup ## write docs/CONVERSIONS.md again: what becomes of fields between protocols
	@$(PYTHON_ENV)/python -m tests.conversions

.PHONY: clean
clean: ## remove what was built; data and .venv stay
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis htmlcov .coverage*
	@find src -name '*.so' -delete -o -name '_build_mode.txt' -delete
