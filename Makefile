# Every key=value on the command line goes to retrograd as it was typed:
#   make train env=breakout preset.lr=0.001 seed=3
#   make evaluate +checkpoint_path=outputs/x/checkpoints/best
# PYTHON, VENV, EXTRAS and RETROGRAD belong to this file and are not passed on.

SHELL := /bin/sh
.DEFAULT_GOAL := help

PYTHON ?= python3
EXTRAS ?= dev
VENV ?= .venv
BIN := $(VENV)/bin
RETROGRAD = $(BIN)/retrograd
STAMP := $(VENV)/.installed

# make lists its overrides last to first, doubles each $ and puts a backslash before blanks and
# backslashes. Blanks and backslashes travel as marks while the words are put back in order; then
# each word is quoted for the shell.
empty :=
space := $(empty) $(empty)
tab := $(empty)	$(empty)
reverse = $(if $(1),$(call reverse,$(wordlist 2,$(words $(1)),$(1))) $(firstword $(1)))
given := $(subst $$$$,$$,$(subst \$(tab),<tab>,$(subst \$(space),<blank>,$(subst \\,<backslash>,$(MAKEOVERRIDES)))))
given := $(strip $(filter-out PYTHON=% VENV=% RETROGRAD=% EXTRAS=% PYTHON:=% VENV:=% RETROGRAD:=% EXTRAS:=%,$(call reverse,$(given))))
unmark = $(subst <backslash>,\,$(subst <blank>,$(space),$(subst <tab>,$(tab),$(1))))
overrides := $(foreach word,$(given),'$(subst ','\'',$(call unmark,$(word)))')

# make would also put overrides such as seed=3 into the environment and into every make started below.
unexport PYTHON VENV EXTRAS RETROGRAD $(foreach word,$(given),$(firstword $(subst =, ,$(word))))
MAKEOVERRIDES :=

.PHONY: help install train resume evaluate video watch sweep dashboard doctor test test-faults test-trackers test-browser test-nightly lint fmt types benchmark benchmark-quick results screenshots check clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-14s %s\n", $$1, $$2 }'

install: $(STAMP) ## make .venv and put in what is missing

$(STAMP): pyproject.toml constraints.txt $(wildcard src/retrograd/*/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

train: $(STAMP) ## train an agent: DQN on Pong unless overrides say otherwise
	@$(RETROGRAD) train $(overrides)

resume: $(STAMP) ## go on with a run: +checkpoint_path=outputs/x training.total_env_frames=...
	@$(RETROGRAD) resume $(overrides)

evaluate: $(STAMP) ## score a checkpoint: +checkpoint_path=outputs/x/checkpoints/best
	@$(RETROGRAD) evaluate $(overrides)

video: $(STAMP) ## record one episode: +checkpoint_path=... +output_video=play.mp4
	@$(RETROGRAD) video $(overrides)

watch: $(STAMP) ## play in a window: +checkpoint_path=...
	@$(RETROGRAD) watch $(overrides)

sweep: $(STAMP) ## several runs: agent=ppo env=cartpole preset.lr=0.001,0.003 seed=0,1,2 +jobs=2 +search=random ...
	@$(RETROGRAD) sweep $(overrides)

dashboard: $(STAMP) ## look at runs in the browser
	@$(BIN)/python -c 'import streamlit, plotly' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dashboard]"
	@$(RETROGRAD) dashboard

doctor: $(STAMP) ## what works on this machine
	@$(RETROGRAD) doctor $(overrides)

test: $(STAMP) ## all tests but the long fault tests, trackers, browser and nightly forms
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not nightly and not faults and not trackers and not browser"

test-faults: $(STAMP) ## runs killed, disks filled, workers shot; prints a figure for each promise
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "faults and not nightly"

test-trackers: $(STAMP) ## against a tracker's own server; needs make install EXTRAS=dev,trackers
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m trackers

test-browser: $(STAMP) ## the dashboard in headless Chromium; needs make install EXTRAS=dev,dashboard,browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "browser and not nightly"

test-nightly: $(STAMP) ## the long forms only
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "nightly and not browser"

lint: $(STAMP) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fmt: $(STAMP) ## ruff: repair what can be repaired
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

types: $(STAMP) ## mypy
	$(BIN)/mypy

benchmark: $(STAMP) ## whole training runs beside other libraries, taken in turns (about 40 minutes)
	$(BIN)/python benchmarks/peers.py --peers-venv .peers --output peers.json --picture peers.png

benchmark-quick: $(STAMP) ## has our share of the limit fallen?
	$(BIN)/python benchmarks/peers.py --quick

results: $(STAMP) ## draw the figures and tables of docs/results from their logs
	$(BIN)/python benchmarks/make_results.py
	$(BIN)/python benchmarks/minatar.py --table-only

screenshots: $(STAMP) ## the pictures of docs/dashboard.md, from short runs and the logs of docs/results
	$(BIN)/python benchmarks/make_screenshots.py

check: lint types test ## what has to pass before a change goes in

clean: ## remove caches; .venv and outputs stay
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis build
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
