# Two commands do all: `make run` sets up and runs the main job, `make test` sets up and passes the tests.
# Set-up goes to .venv. TORCH names the torch to install first: any build (CPU, CUDA, ROCm) will do, and nothing below
# installs a second one. A torch that is already in .venv is kept.
PYTHON ?= python3
TORCH ?= torch==2.13.0
MODEL ?= meta-llama/Llama-2-70b
TASK ?= finetune
HARDWARE ?= h200-x8
BIN := .venv/bin

.PHONY: run test lint docs docs-commands setup setup-dev clean

run: .venv/.ready
	$(BIN)/advisor recommend --model $(MODEL) --task $(TASK) --hardware $(HARDWARE)

test: .venv/.ready-dev lint
	$(BIN)/python -m pytest -q

lint: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.ready-dev
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs
	@echo build/docs/index.html

# All commands of the documentation, the slow ones too (the tests leave those out).
docs-commands: .venv/.ready-dev
	ADVISOR_DOCS=all $(BIN)/python -m pytest -q tests/docs

setup: .venv/.ready
setup-dev: .venv/.ready-dev

.venv/.torch:
	$(PYTHON) -m venv .venv
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install -q "$(TORCH)"
	touch $@

# DeepSpeed's build reads the installed torch, so it is built here and not in an isolated environment.
.venv/.ready: .venv/.torch pyproject.toml constraints.txt
	$(BIN)/pip install -q -c constraints.txt setuptools wheel ninja hatchling editables
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation deepspeed
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation -e ".[quantization,ui]"
	touch $@

.venv/.ready-dev: .venv/.ready
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation -e ".[quantization,ui,dev,docs]"
	touch $@

clean:
	rm -rf .venv build dist
