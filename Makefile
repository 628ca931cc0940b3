# make book   build the package from the chapters, execute them, render the site
# make test   everything that must hold before a change is merged
PYTHON ?= python3
# numpy 2.0 has no wheel for Python 3.13.
PYTHON_OLDEST ?= python3.11
VENV := .venv
OLDEST := .venv-oldest
PEERS := .venv-peers
LITE := .venv-lite
BIN := $(CURDIR)/$(VENV)/bin
JOBS ?= auto

# Notebooks run with the kernel of this environment and with its settings, whatever kernels,
# start-up files and history the user has.
export JUPYTER_PREFER_ENV_PATH := 1
export IPYTHONDIR := $(CURDIR)/$(VENV)/ipython
KERNEL := $(VENV)/ipython/profile_default/ipython_kernel_config.py
export MATPLOTLIBRC := $(CURDIR)/book/matplotlibrc
export PATH := $(BIN):$(PATH)
# Two or more processes at once: one BLAS thread each.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
ifndef LML_DATA
ifneq ($(wildcard ../shared/data),)
export LML_DATA := $(abspath ../shared/data)
endif
endif

.DEFAULT_GOAL := help
.PHONY: help book lite lite-check lite-trial test test-fast test-studies test-seeds test-oldest kill-stream mutants fuzz coverage dist tangle execute site-check pdf linkcheck results verify bench bench-quick clean

# Tests of the book, of its tools, of the benchmark and of the pins; the others are the package's own.
BOOK_TESTS := benchmarks book_builds chapters folds fuzz lite mutations pictures readme search site site_bounds site_tools structure tangle workflows

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# The environment is made afresh whenever a pin changes.
$(VENV)/pins: requirements/newest.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: name one, as in make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/newest.lock
	@touch $@

$(KERNEL): tools/ipython_kernel_config.py $(VENV)/pins
	@mkdir -p $(@D)
	@cp $< $@

$(VENV)/ready: $(VENV)/pins $(KERNEL) pyproject.toml
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

book: $(VENV)/ready  ## build lml from the chapters, execute them, render the site
	$(BIN)/python tools/tangle.py
	$(BIN)/python tools/execute.py --into _build/executed
	rm -rf _build/html _build/.doctrees _build/jupyter_execute
	$(BIN)/jupyter-book build . -W -n --keep-going
	$(BIN)/python tools/typeset.py
	@echo "The book: file://$(CURDIR)/_build/html/index.html"

# The app's builder has an environment of its own: nothing else needs it.
$(LITE)/pins: requirements/lite.txt
	$(PYTHON) -m venv --clear $(LITE)
	$(LITE)/bin/python -m pip install --quiet -r requirements/lite.txt
	@touch $@

lite: $(VENV)/ready $(LITE)/pins  ## the book, and beside it an app that runs chapters in a browser
	BOOK_LITE=1 $(MAKE) book
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel .
	$(LITE)/bin/python -m pip download --quiet --no-deps --dest build/wheel \
	  $$(grep '^comm==' requirements/lite.txt)  # the one part of the kernel that its own host lacks
	$(BIN)/python tools/lite.py --jupyter $(LITE)/bin/jupyter --wheels build/wheel

lite-check: $(VENV)/ready  ## open the app beside the book in headless Chromium (after make lite)
	$(BIN)/python tools/lite_check.py

lite-trial: lite  ## start the app's kernel in headless Chromium, all served from here (needs npm)
	$(BIN)/python tools/lite_kernel.py --python $(LITE)/bin/python build/pyodide
	$(BIN)/python tools/lite.py --jupyter $(LITE)/bin/jupyter --wheels build/wheel --pyodide build/pyodide
	$(BIN)/python tools/lite_check.py
	$(BIN)/python tools/lite.py --jupyter $(LITE)/bin/jupyter --wheels build/wheel

test: $(VENV)/ready  ## all but test-studies: tangle check, ruff, mypy, pytest, nbval, contract
	$(BIN)/python tools/tangle.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check lml tests tools book/_ext
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(JOBS) -m "not studies and not builds" tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --nbval-lax --nbval-current-env book

test-fast: $(VENV)/ready  ## in a minute: one learner of each family, few examples, no notebooks
	$(BIN)/python -m pytest -n $(JOBS) --fast $(BOOK_TESTS:%=--ignore=tests/test_%.py) tests

test-studies: $(VENV)/ready  ## tests of the laboratory, of built books, clusters, killed processes; dist
	$(BIN)/python -m pytest -n $(JOBS) -m "studies or builds" tests
	$(MAKE) dist

SEEDS ?= 1 2 3
test-seeds: $(VENV)/ready  ## the package's tests with other seeds: SEEDS="1 2 3"
	set -e; for seed in $(SEEDS); do \
	  $(BIN)/python -m pytest -n $(JOBS) -m "not studies and not builds" --global-random-seed $$seed \
	    $(BOOK_TESTS:%=--ignore=tests/test_%.py) tests; \
	done

$(OLDEST)/ready: requirements/oldest.txt pyproject.toml
	$(PYTHON_OLDEST) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet -r requirements/oldest.txt
	$(OLDEST)/bin/python -m pip install --quiet --no-deps --editable .
	@touch $@

test-oldest: $(OLDEST)/ready  ## the package's tests on the oldest supported versions
	$(OLDEST)/bin/python -m pytest -n $(JOBS) $(BOOK_TESTS:%=--ignore=tests/test_%.py) tests

kill-stream: $(VENV)/ready  ## 1,000 tasks through save and load, killed at random moments
	set -e; for learner in oasis plda classifier; do \
	  $(BIN)/python tests/support/kill_stream.py --learner $$learner --tasks 1000 --kills 40; \
	done

mutants: $(VENV)/ready  ## change the package in one place at a time; do its tests notice? (30 minutes)
	$(BIN)/python tools/mutants.py

build/atheris/ready: requirements/fuzz.txt $(VENV)/ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) -r requirements/fuzz.txt
	@touch $@

fuzz: build/atheris/ready  ## damaged files for all readers, guided by coverage (10 minutes)
	PYTHONPATH=build/atheris $(BIN)/python tools/fuzz.py

coverage: $(VENV)/ready  ## branch coverage of lml by the tests, with the missing lines
	$(BIN)/python -m pytest -n $(JOBS) --cov --cov-report=term-missing:skip-covered tests

dist: $(VENV)/ready  ## sdist and wheel in dist/, each tried in an environment of its own
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	set -e; for file in dist/*; do \
	  $(PYTHON) -m venv --clear build/fresh; \
	  build/fresh/bin/python -m pip install --quiet --constraint requirements/newest.txt "$$file"; \
	  build/fresh/bin/python -I tools/try_dist.py; \
	done

tangle: $(VENV)/ready  ## write lml/ from the chapters
	$(BIN)/python tools/tangle.py

execute: tangle  ## run every chapter and store its outputs
	$(BIN)/python tools/execute.py

site-check: $(VENV)/ready  ## open every built page in headless Chromium (after make book)
	$(BIN)/python tools/site_check.py

pdf: $(VENV)/ready  ## print the chapters and bind them, in _build/pdf (after make book)
	$(BIN)/python tools/pdf.py

linkcheck: $(VENV)/ready  ## ask for every address outside that the built site links to
	$(BIN)/python tools/linkcheck.py

results: $(VENV)/ready  ## run what is missing of the experiments on real data, then the report
	$(BIN)/python -m lml.studies run --jobs 2
	$(BIN)/python -m lml.studies ablations --jobs 2
	$(BIN)/python -m lml.studies transfer --jobs 2

verify: $(VENV)/ready  ## run a slice of the experiments again and compare bit for bit
	$(BIN)/python -m lml.studies verify --splits 1 --systems euclidean oasis logistic omtrsl

# What metric-learn needs clashes with the pins of the book: the peers have their own environment.
$(PEERS)/pins: requirements/peers.txt
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -r requirements/peers.txt
	@touch $@

bench: $(VENV)/ready $(PEERS)/pins  ## measure time and memory beside the peers (45 minutes), into results/
	$(BIN)/python -m tools.benchmarks

bench-quick: $(VENV)/ready $(PEERS)/pins  ## the same with one run a row, minutes, into results/report
	$(BIN)/python -m tools.benchmarks --quick

clean:  ## remove what was built, keep the environment
	rm -rf _build build dist
