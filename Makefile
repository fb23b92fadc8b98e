# `make run` and `make test` need Python 3.11, a Java 17 runtime and nothing else.
PYTHON ?= python3.11
BIN := .venv/bin
ARGS ?=
WORKERS ?= 2
PYTEST ?= -m pytest
# Files stay whole on a worker, in the order of tests/conftest.py.
SHARED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=5
PYTHON_MISSING = error: there is no $(PYTHON) on this machine: install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv) or name one with make PYTHON=/path/to/python3.11

.PHONY: help run run-kafka test test-ci test-fast check soak bench setup setup-test lock docs pictures texts clean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: setup ## set up what is missing, then start the demo lake, the streams and the page
	@$(BIN)/weir up

run-kafka: export WEIR_HOME := $(or $(WEIR_HOME),.weir/kafka)
run-kafka: export WEIR_DEMO__KAFKA := $(or $(WEIR_DEMO__KAFKA),127.0.0.1:9092)
run-kafka: setup-test ## the same demo through the topics of a Kafka broker, in a lake of its own
	@$(BIN)/weir up

# Else every process that a test starts compiles all that it imports, where the environment forbids to keep it.
test test-ci test-fast soak: export PYTHONDONTWRITEBYTECODE =

soak: export WEIR_TEST_SOAK = 1

test: setup-test ## run a test of every kind on two workers (ARGS="-k name" for a part, ARGS="-n 0" for one process)
	@$(BIN)/python $(PYTEST) $(SHARED) -m "not ci and not soak" $(ARGS)

test-ci: setup-test ## run what CI runs after `make test`: the other contracts on Spark, browser, S3 and PostgreSQL, and the core faults
	@$(BIN)/python $(PYTEST) $(SHARED) -m "ci and not soak" $(ARGS)

test-fast: setup-test ## run the domain's tests: no JVM, no browser, no page
	@$(BIN)/python $(PYTEST) tests/backend $(SHARED) -m "not ci and not soak" $(ARGS)

soak: setup-test ## run the races, torture, comparisons and long fault runs, and drawn examples with more of them
	@$(BIN)/python $(PYTEST) $(SHARED) -m "soak or drawn" $(ARGS)

bench: setup-test ## measure one part against its peer: SUITE=lake|diff|pages|ui|streams|scale|maintenance|query (ARGS="--write" keeps the figures)
	@$(BIN)/python -m bench $(SUITE) $(ARGS)

check: setup-test ## format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

setup: ## make .venv and fetch the JARs (steps already done are skipped)
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON_MISSING)" >&2; exit 1; }
	@$(PYTHON) -I app/run/setup_env.py run

setup-test: ## the same with what the tests need
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON_MISSING)" >&2; exit 1; }
	@$(PYTHON) -I app/run/setup_env.py test

lock: setup ## pin the packages of each requirements*.in anew, with the digests of their files
	@for name in requirements requirements-setup requirements-dev; do \
		$(BIN)/uv pip compile --quiet --generate-hashes --python-version 3.11 --custom-compile-command "make lock" $$name.in -o $$name.txt || exit 1; \
	done

pictures: setup-test ## take the pictures of docs/tour.md from the demo: a quarter of an hour, with Chromium
	@$(BIN)/python -m tests.browser.pictures

texts: setup ## list every sentence of pages, commands and errors, those of more than twenty words marked
	@$(BIN)/python -m tests.texts

docs: setup ## write docs/settings.md from the settings, and the faults of docs/streams.md, the metrics of docs/run.md
	@$(BIN)/python -m backend.docs

clean: ## remove what can be made again; .weir (the demo lake) stays
	rm -rf .venv *.egg-info pipelines/jars/lib test-results .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find app backend pages pipelines tests -name __pycache__ -type d -prune -exec rm -rf {} +
