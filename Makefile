# Every target sets up what it needs. PYTHON chooses the interpreter, OUT the folder of a study.
SHELL := bash
PYTHON ?= python3
OUT ?= runs/$(shell date +%Y%m%d-%H%M%S)
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Bytecode is written at first import, of what is imported, which saves a third of the set-up: nothing may forbid that.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
SLOW := slow or browser or network

.PHONY: study test check example locks clean

study: $(VENV)/study.stamp
	$(BIN)/penaltylab run --out $(OUT) $(ARGS)

test: $(VENV)/dev.stamp
	$(BIN)/pytest -n auto --maxprocesses 4 -m "not ($(SLOW))" $(ARGS)
	@if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then $(BIN)/pytest -m gpu; fi

check: $(VENV)/dev.stamp
	$(BIN)/pytest -m "$(SLOW)" $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 14) else \
	  f"penaltylab needs Python 3.11 to 3.13, this is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/study.stamp: requirements.lock pyproject.toml | $(BIN)/python
	$(INSTALL) -r requirements.lock
	$(INSTALL) --no-deps -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(BIN)/python
	$(INSTALL) -r requirements-dev.lock
	$(INSTALL) --no-deps -e .
	@touch $@

# Draws the figure of the README again.
example: $(VENV)/study.stamp
	rm -rf data/example && $(BIN)/penaltylab run 02 03 --device emu --out data/example
	cd data/example && rm -rf .lock figures/*.html && sed -i.tmp 's#$(CURDIR)/##g' notebooks/* && rm notebooks/*.tmp

# Refreshes both locks; needs uv. torch pins its own CUDA packages, so that a lock without them fits every build of it.
COMPILE := uv pip compile pyproject.toml --universal --upgrade --quiet --no-header --no-annotate
locks:
	@set -e; for lock in "requirements.lock:" "requirements-dev.lock:--extra dev --extra view"; do \
	  file=$${lock%%:*}; echo 'torch==2.13.0' | $(COMPILE) $${lock#*:} --constraint - | \
	  grep -vE '^(nvidia-|cuda-|triton)' | cat <(sed -n '/^#/p' $$file) - > $$file.new; mv $$file.new $$file; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
