# kbenv: `make run` and `make test` work on a fresh machine; `make help` lists the rest.

SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
# Written last, by a set-up that was complete; it holds the checkout's path, since a .venv cannot be moved.
STAMP := $(VENV)/ready
REPLAY := replay:examples/replay
# Those that there are recorded answers for.
PROBLEMS := $(shell cd examples/replay && echo core/*/* | tr ' ' ,)
PART := 1

export PIP_DISABLE_PIP_VERSION_CHECK := 1

SET_UP := $(shell [ "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" ] && $(BIN)/python -c "" 2>/dev/null && echo yes)
ifneq ($(SET_UP),yes)
.PHONY: $(STAMP)
endif

.PHONY: help
help: ## what each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | while IFS='|' read -r name words; do
		printf 'make %-15s %s\n' "$$name" "$$words"
	done

.PHONY: run
run: $(STAMP) ## best of five single shots, then a multi-turn refinement, on the core problems (no key, no GPU needed)
	@run=($(BIN)/kbenv run --model $(REPLAY) --problems '$(PROBLEMS)' --allow-same-uid) # the answers are ours
	"$${run[@]}" --agent single-shot -n 5 --out runs/single-shot
	"$${run[@]}" --agent multi-turn --turns 6 --out runs/multi-turn

.PHONY: test
test: $(STAMP) ## the tests that need neither GPU nor Docker (of each corpus one file in ten)
	@$(BIN)/python -m pytest -m 'not gpu and not docker and not llm and not corpus' --durations=10

.PHONY: test-corpora
test-corpora: $(STAMP) ## the corpora's files, and the longest tests, that `make test` leaves out: of three parts PART=1, 2 or 3
	@$(BIN)/python -m pytest -m 'corpus_$(PART) and not gpu and not docker' --durations=10

.PHONY: test-corpora-docker
test-corpora-docker: $(STAMP) ## of each corpus the file in ten that `make test` judges, in Docker
	@$(BIN)/python -m pytest tests/judge -m 'docker and not corpus and not gpu' --durations=10

.PHONY: test-gpu
test-gpu: $(STAMP) ## the tests that need a CUDA device
	@$(BIN)/python -m pytest -m 'gpu and not docker' --durations=10

.PHONY: test-docker
test-docker: $(STAMP) ## the tests that need a Docker engine with our image (`kbenv sandbox build`)
	@$(BIN)/python -m pytest tests/docker -m 'docker and not gpu' --durations=10

.PHONY: test-docker-gpu
test-docker-gpu: $(STAMP) ## the tests that need both
	@$(BIN)/python -m pytest -m 'docker and gpu' --durations=10

.PHONY: lint
lint: $(STAMP) ## ruff and mypy
	@$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

.PHONY: bench
bench: $(STAMP) ## the measurements under benchmarks/results (on a GPU, minutes)
	@$(BIN)/python benchmarks/report.py
	@$(BIN)/python benchmarks/queued.py
	@$(BIN)/python benchmarks/side_by_side.py $(if $(UPSTREAM),--upstream $(UPSTREAM))

.PHONY: setup
setup: $(STAMP) ## the .venv alone

.PHONY: clean
clean: ## removes the .venv, builds and caches; runs/ stays
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The first interpreter that is new enough, or $(PYTHON) when given. Where it has a CUDA build of torch, the .venv sees
# the packages of that interpreter, so that the torch which fits the machine's driver is used and not downloaded again
# (save inside another virtual environment, whose packages a .venv cannot see).
$(STAMP): pyproject.toml constraints.txt
	@rm -f $(STAMP)
	python=""
	for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			python="$$candidate"
			break
		fi
	done
	if [ -z "$$python" ]; then
		found="$$("$(or $(PYTHON),python3)" --version 2>&1)" || found="not to be had"
		echo "kbenv needs Python 3.11 or newer; $(or $(PYTHON),python3) is $$found" >&2
		echo "Install it (Debian, Ubuntu: apt-get install python3 python3-venv python3-dev) or name one: make PYTHON=/path/to/python3" >&2
		exit 1
	fi
	if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then
		echo "$$python cannot make a virtual environment: its venv module is missing (Debian, Ubuntu: apt-get install python3-venv)" >&2
		exit 1
	fi
	options=() extras=dev constraint=(-c constraints.txt)
	if "$$python" -c 'import sys, torch; sys.exit(torch.version.cuda is None or sys.prefix != sys.base_prefix)' 2>/dev/null; then
		options=(--system-site-packages) extras=dev,cuda constraint=()
	elif command -v nvidia-smi >/dev/null; then
		extras=dev,cuda
	fi
	echo "setting up $(VENV) with $$("$$python" --version) (minutes at the first time)" >&2
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1 || [ "$$(cat $(VENV)/made-in 2>/dev/null)" != "$(CURDIR)" ]; then
		"$$python" -m venv --clear "$${options[@]}" $(VENV)
		echo "$(CURDIR)" > $(VENV)/made-in
	fi
	$(BIN)/python -m pip install --quiet "$${constraint[@]}" -e ".[$$extras]"
	echo "$(CURDIR)" > $(STAMP)
