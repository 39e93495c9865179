# `make` lists the targets. Everything is installed into .venv, everything that runs keeps its state in .local.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# Spark's scripts and Airflow's are found beside the interpreter.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Images for containers often set it. Then each process, of Airflow's many, would compile this package anew.
unexport PYTHONDONTWRITEBYTECODE
LOCAL := $(BIN)/python -m include.local

# More for one run by ARGS, e.g. make test ARGS="-k conflict -x". Tests share servers by groups (tests/support/groups.py), and
# each of so many processes works at one group.
# pytest's 5: nothing was selected.
PYTEST = run() { $(BIN)/pytest "$$@" $(ARGS) || (($$? == 5)); }; run
TESTS := tests include/local_onelake/tests
CHECKED := airflow_provider_onelake $(wildcard dags include tests hatch_build.py)

.PHONY: help setup lock jars stores classes format lint docs release-check test promise test-all test-rest test-nightly test-about simulate seeded-bugs matrix up down status demo bench stress clean distclean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-13s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.stamp ## Check Python 3.11 to 3.13 and Java 17+, fill .venv with the locked versions
$(VENV)/.stamp: requirements.lock pyproject.toml include/local_onelake/pyproject.toml .ci/setup
	@.ci/setup $(VENV)

lock: ## Resolve pyproject.toml into requirements.lock, versions only (UPGRADE=1: the newest)
	@[[ -x $(BIN)/uv ]] || .ci/setup $(VENV)
	VENV=$(VENV) .ci/uv pip compile --quiet $(if $(UPGRADE),--upgrade) --universal --python-version 3.11 \
		--extra azure --extra local --extra openlineage --extra s3 --group dev --no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package local-onelake \
		--output-file requirements.lock pyproject.toml

jars: setup ## Fetch Spark's JARs for Delta, S3 and Azure (once)
	@$(LOCAL) jars

stores: setup ## Install an S3 server, an Azure Blob server and docker-compose for tests (once; the first time five minutes)
	@$(BIN)/python -m tests.support.tools

classes: jars ## Write an archive of Spark's classes, with which tests' JVMs are ready in half the time (once; a minute)
	@$(BIN)/python -m tests.support.spark_jvms

format: setup ## Format the code, mend what ruff can
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

lint: setup ## ruff, ruff format, mypy --strict, import-linter
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy -p airflow_provider_onelake -p include -p local_onelake
	$(BIN)/lint-imports

docs: setup ## Build the docs' site into site/, without a warning or a dead link (SERVE=1: and show it on this machine)
	@export AIRFLOW_HOME=$(CURDIR)/.local/docs NO_MKDOCS_2_WARNING=1; $(BIN)/python -m mkdocs build --quiet
	@$(if $(SERVE),export AIRFLOW_HOME=$(CURDIR)/.local/docs NO_MKDOCS_2_WARNING=1; $(BIN)/python -m mkdocs serve)

release-check: setup ## Build what a release would publish into dist/, and say what stands in its way
	$(BIN)/python -m include.release

test: classes ## Ten minutes: lint, the docs' site, and the tests of all that the promise rests on, with real Spark and a live Airflow
	@$(MAKE) --no-print-directory --jobs 2 lint docs promise

promise: classes
	@$(PYTEST) --numprocesses 3 -m promise $(TESTS)

test-all: test test-rest ## Everything but test-nightly: every store by every engine, outages, kills, the web UI, 1,000 schedules, …

test-rest: stores classes ## What `make test` has not run (SHARE=2/3: the second third of its files)
	@export TESTS_SHARE=$(SHARE); $(PYTEST) --numprocesses 3 -m "not promise and not nightly" $(TESTS)
	@$(MAKE) --no-print-directory seeded-bugs ARGS=

test-nightly: stores classes ## What takes minutes a test: docs/project/contributing.md says what it is
	@$(PYTEST) --numprocesses 2 -m nightly $(TESTS)

test-about: stores classes ## The tests of one subject, e.g. ABOUT=upkeep (`pytest --markers` lists them; UI_IMAGES=1 with ABOUT=ui: the docs' pictures)
	@export UI_IMAGES=$(UI_IMAGES); $(PYTEST) --numprocesses 2 -m "$(ABOUT) and not nightly" $(TESTS)

simulate: setup ## SCHEDULES=N (10000) of writers, of statements, and of new tables, beside crashes and others at one simulated table, from new seeds (ARGS="--seconds 3600": an hour each)
	$(BIN)/python -m tests.simulation --workers $(shell nproc) $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(ARGS)
	$(BIN)/python -m tests.simulation --statements --workers $(shell nproc) $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(ARGS)
	$(BIN)/python -m tests.simulation --new-tables --workers $(shell nproc) $(if $(SCHEDULES),--schedules $(SCHEDULES)) $(ARGS)

seeded-bugs: setup ## Put small bugs into the code, one at a time: the tests named for each must fail (ARGS="--only vacuum")
	$(BIN)/python -m tests.seeded_bugs $(ARGS)

matrix: classes ## The tests that name what another Airflow, Spark or Python changes, on each of seven (CELL=airflow-3.2: on one)
	@$(BIN)/python -m tests.matrix $(CELL)

up: jars ## Start Airflow, PostgreSQL and Spark Connect in the background (ONELAKE=1: on a local OneLake; in containers: docs/operate/compose.md)
	@$(if $(ONELAKE),LOCAL_ONELAKE=1) $(LOCAL) up

down: ## Stop what `make up` started
	@if [[ -x $(BIN)/python ]]; then $(LOCAL) down; fi

status: setup ## What runs, and how it is
	@$(LOCAL) status

demo: jars ## Load every month of INPUT=dir into LAKEHOUSE=dir/Tables/trips (also TABLE_MODE=, PARTITION_BY=)
	@$(LOCAL) demo $(if $(INPUT),--input "$(INPUT)") $(if $(LAKEHOUSE),--lakehouse "$(LAKEHOUSE)") \
		$(if $(TABLE_MODE),--table-mode "$(TABLE_MODE)") $(if $(PARTITION_BY),--partition-by "$(PARTITION_BY)")

bench: jars ## What loads, commits, large tables and tasks cost, beside other ways (PAGE=1: writes docs/project/performance.md and README's figures)
	$(BIN)/python -m tests.benchmarks $(if $(PAGE),--page) $(ARGS)

stress: jars ## Loads by every policy, backfills, compactions, other engines and a reader at two tables, for MINUTES (10)
	$(BIN)/python -m tests.live.stress --minutes $(or $(MINUTES),10)

clean: down ## Stop everything; remove what ran and what was built, but not .venv and not what was fetched
	@if [[ -x $(BIN)/python ]]; then $(LOCAL) clean; fi
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site bench-results
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and .local too
	rm -rf $(VENV) .local
