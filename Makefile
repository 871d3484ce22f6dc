# make demo    set up plain quoth, without torch, and see it answer
# make test    set up for developing and run the quick tests
# make test-plain  the quick tests that need no torch, with PYTHON= on any version
# make test-slow   the rest: kills, long references, kernels in an interpreter, builds
# make fuzz SECONDS=900  hostile files and arguments for so long; prints cases and findings of each target
# make papers  the report of the four papers from stored runs, without training: papers.html and claims.md
# make check   lint, types, import direction
PYTHON ?= python3
VENV ?= .venv
DEMO ?= .venv-demo
PLAIN ?= .venv-plain
SECONDS ?= 900
JOBS ?= 2
RUNS ?= $(wildcard benchmarks/results/runs)
OUT ?= benchmarks/results
PIP := $(VENV)/bin/pip --disable-pip-version-check install --quiet -c constraints.txt
CHECK := 'import sys; sys.version_info >= (3, 11) or sys.exit("Quoth needs Python 3.11 or newer; set PYTHON=…")'

.PHONY: demo test test-plain test-slow fuzz papers check lint types imports format clean

demo: $(DEMO)/.ready
	$(DEMO)/bin/quoth ask "Who made a copy of the watch?" examples/longitude.txt
	$(DEMO)/bin/python examples/demo.py

# One worker for each core, one thread for each worker.
test: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist loadfile -m "not slow"

# What needs no torch, in a plain install; with PYTHON= on any version, such as the newest.
test-plain: $(PLAIN)/.ready
	OMP_NUM_THREADS=1 $(PLAIN)/bin/python -m pytest -n auto --dist loadfile -m "not slow" $(addprefix tests/,data augment windows search score answer)

test-slow: $(VENV)/.ready
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist loadfile -m slow

# Findings are saved to fuzz-findings/, each with the command that runs it again.
fuzz: $(VENV)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(VENV)/bin/python -m fuzz --seconds $(SECONDS) -j $(JOBS)

# Needs matplotlib, and no torch. python -m benchmarks.pack_runs --store puts sweeps into RUNS.
papers: $(VENV)/.ready
	$(VENV)/bin/python -m quoth reproduce --report $(OUT)/papers.html --claims $(OUT)/claims.md $(addprefix --runs ,$(RUNS))

check: lint types imports

imports: $(VENV)/.ready
	$(VENV)/bin/lint-imports

lint: $(VENV)/.ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.ready
	$(VENV)/bin/mypy

format: $(VENV)/.ready
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# A wheel, as a user would install it; from a clean build/, since setuptools would take along what an older one left there.
$(DEMO)/.ready: pyproject.toml constraints.txt $(shell find src/quoth -type f ! -path '*/__pycache__/*')
	$(PYTHON) -c $(CHECK)
	$(PYTHON) -m venv $(DEMO)
	rm -rf build
	$(DEMO)/bin/pip --disable-pip-version-check install --quiet -c constraints.txt .
	$(DEMO)/bin/python -c 'import importlib.util, sys; importlib.util.find_spec("torch") and sys.exit("torch is installed")'
	touch $@

# torch goes first and pinned, so that nothing else asks for a newer one.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c $(CHECK)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	touch $@

$(PLAIN)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c $(CHECK)
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/pip --disable-pip-version-check install --quiet -e . pytest pytest-xdist hypothesis scipy scikit-learn fpdf2 python-docx
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) $(PLAIN) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
