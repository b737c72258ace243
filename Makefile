# Two commands suffice on a machine with Python (3.11 or newer), pip and make:
#   make run     installs and runs the main job
#   make test    installs the test dependencies, lints, type-checks, builds the documentation, runs the tests

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    ?= runs/pendulum

.PHONY: help run test test-all lint docs format benchmark clean

help:
	@echo "make run        install, learn to swing up a pendulum in $(RUN), render a video (RUN=DIR for another directory)"
	@echo "make test       install the test dependencies, lint, type-check, build the documentation, run the tests"
	@echo "make test-all   the same, and the slow tests"
	@echo "make docs       build the documentation in site; a warning is an error"
	@echo "make benchmark  measure costs, write docs/results.md"
	@echo "make format     format the code"
	@echo "make clean      remove the virtual environment and caches; runs are kept"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "purectrl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[video]'
	touch $@

# torch is installed first and by version: another version would install gigabytes of CUDA packages
$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,docs,onnx,ray,submitit,diffusion,digits-data,tensorboard,wandb]'
	touch $@

# a finished run is shown, a stopped one is resumed
run: $(VENV)/installed
	@if [ -e "$(RUN)/config.json" ]; then $(BIN)/purectrl resume "$(RUN)"; \
	else $(BIN)/purectrl run pendulum --algorithm pure-enode --out "$(RUN)"; fi
	@$(BIN)/purectrl evaluate "$(RUN)" --video

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# reads the sources without importing them; the variable silences a notice about another program
docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: lint docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal --durations=25

test-all: lint docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

benchmark: $(VENV)/installed-dev
	$(BIN)/python benchmarks/loop_overhead.py
	$(BIN)/python benchmarks/theory_speed.py
	$(BIN)/python benchmarks/control_speed.py
	$(BIN)/python benchmarks/against_enode.py
	$(BIN)/python benchmarks/diffusion_memory.py
	$(BIN)/python benchmarks/report_speed.py
	$(BIN)/python benchmarks/when_to_measure.py
	$(BIN)/python benchmarks/policy_latency.py
	$(BIN)/python benchmarks/page.py

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
