PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ifndef LML_DATA
ifneq ($(wildcard ../shared/data),)
export LML_DATA := $(abspath ../shared/data)
endif
endif

$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	touch $@

.PHONY: book test
book: $(VENV)/ready
	$(BIN)/python tools/tangle.py
	rm -rf _build/.jupyter_cache _build/.doctrees
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo "The book is at $(CURDIR)/_build/html/index.html"

test: $(VENV)/ready
	$(BIN)/python tools/tangle.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check lml tests tools
	$(BIN)/python -m pytest -n auto tests
	$(BIN)/python -m pytest -n auto --dist loadfile --nbval-lax --nbval-current-env book
