# make demo    set up and see it work
# make test    set up and run every test
# make check   lint and types
PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test check lint types format clean

demo: $(VENV)/.ready
	$(VENV)/bin/python examples/encode.py

test: $(VENV)/.ready
	$(VENV)/bin/python -m pytest -n auto --dist loadfile

check: lint types

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.ready
	$(VENV)/bin/mypy

format: $(VENV)/.ready
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# torch goes first and pinned, so that nothing else asks for a newer one.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Laconic needs Python 3.11 or newer; set PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
