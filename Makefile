# Each target does its own set-up: python3 (3.11 or later) and make are all it takes.
PYTHON ?= python3
PY     := .venv/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --quiet --quiet
OLD_LARK := .venv/lark-1.2.2
WORKERS ?= 2
SECONDS ?= 600
LONGER ?= 20

.DEFAULT_GOAL := help
.PHONY: help run test test-engines test-frameworks bench bench-vllm demo-cluster fuzz lint clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

run: .venv/run-ready ## check a packaged policy, then replay a trace under LRU, the policy and the bound
	@echo "— kvp check coding_agent: the packaged policy for coding agents"
	@.venv/bin/kvp check coding_agent
	@echo "— kvp simulate claude-code: the same trace three times on the embedded engine"
	@.venv/bin/kvp simulate claude-code --policy lru --policy coding_agent --policy belady-resident \
		--capacity 1,2,5 --capacity-unit percent

test: lint $(OLD_LARK)/ready .venv/editors/ready .venv/graphviz-ready .venv/redis-ready .venv/prometheus-ready .venv/server-editors-ready ## ruff, mypy and every test, the language tests also with lark 1.2.2
	@PYTHONPATH=$(OLD_LARK) $(PY) -c "import lark; print('— the language tests with lark', lark.__version__)"
	@PYTHONPATH=$(OLD_LARK) KVPOLICY_EXPECT_LARK=1.2.2 $(PY) -m pytest -n $(WORKERS) tests/test_old_lark.py \
		$(wildcard tests/language tests/policy tests/test_language*.py)
	@$(PY) -c "import sys, lark; print('— all tests with lark', lark.__version__, 'on Python', sys.version.split()[0])"
	@$(PY) -m pytest -n $(WORKERS)
	@echo "— passed. Skipped tests, if any, stand above with their reasons. Not run here: timed figures (make bench),"
	@echo "  the long search for counterexamples (make fuzz), tests on real engines (make test-engines)."

test-engines: .venv/test-ready ## the tests that run a real inference engine, in environments under KVPOLICY_ENGINES (default ~/.cache/kvpolicy)
	@$(PY) tests/engines/run.py $(SUITES)
	@[ -n "$(SUITES)" ] || $(MAKE) --no-print-directory test-frameworks

test-frameworks: .venv/made ## the tests with agent frameworks (FRAMEWORKS="langgraph …"), each in its own environment there
	@$(PY) tests/frameworks/run.py $(FRAMEWORKS)

bench: .venv/test-ready .venv/redis-ready ## figures, with the conditions they were measured under
	@$(PY) tests/bench/conditions.py
	@over=0; for script in $(filter-out tests/bench/conditions.py tests/bench/vllm%,$(wildcard tests/bench/*.py)); do \
		echo "— $$script"; $(PY) $$script || over=1; done; exit $$over

bench-vllm: .venv/made ## what claims cost vLLM's block pool: stock and ours in one process, in the environment of test-engines
	@$(PY) tests/engines/environments.py vllm-0.32.0 > .venv/vllm-python
	@"$$(cut -d' ' -f2 .venv/vllm-python)" tests/bench/vllm_queue.py
	@"$$(cut -d' ' -f2 .venv/vllm-python)" tests/bench/vllm_live.py

demo-cluster: .venv/test-ready ## eight simulated engines behind four ways to choose one, as real processes (CLUSTER=options)
	@$(PY) -m tests.cluster.demo $(CLUSTER)

fuzz: .venv/test-ready ## damaged input on every command for SECONDS=600, then the property tests, longer (LONGER=1: not)
	@$(PY) -m tests.fuzz.fuzz --seconds $(SECONDS) --workers $(WORKERS) $(if $(SEED),--seed $(SEED)) $(FUZZ)
	@[ $(LONGER) = 1 ] || KVPOLICY_FUZZ=$(LONGER) $(PY) -m pytest -n $(WORKERS) -m hypothesis

lint: .venv/test-ready ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { $(PY) -m ruff format --check .; exit 1; }
	@$(PY) -m mypy

clean: ## remove everything that the other targets made
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- set-up: stamps, made again when the declared dependencies change --------------------------------------

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit("kvpolicy needs Python 3.11 or later, $(PYTHON) is " + sys.version.split()[0] \
		+ ": make PYTHON=python3.11 …" if sys.version_info < (3, 11) else 0)'
	@echo "— set-up: a virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/run-ready: .venv/made pyproject.toml setup.py
	@echo "— set-up: kvpolicy and what it needs, into .venv (once)"
	@$(PIP) install -e .
	@touch $@

.venv/test-ready: .venv/made pyproject.toml setup.py
	@echo "— set-up: kvpolicy with its test tools, into .venv (once)"
	@$(PIP) install -e '.[dev]'
	@touch $@ .venv/run-ready

# The engine that highlights in VS Code, for the tests of the TextMate grammar; without npm they are skipped by name.
.venv/editors/ready: .venv/made
	@mkdir -p .venv/editors
	@if command -v npm >/dev/null && command -v node >/dev/null; then echo "— set-up: VS Code's highlighting engine"; \
		cd .venv/editors && npm install --silent --no-audit --no-fund vscode-textmate@9.2.0 vscode-oniguruma@2.0.1; \
		else echo "— set-up: no node and npm here (apt-get install nodejs npm): the tests of highlighting in VS Code are skipped"; fi
	@touch $@

$(OLD_LARK)/ready: .venv/made
	@echo "— set-up: lark 1.2.2 beside the newest one (an engine pins it)"
	@$(PIP) install --target $(OLD_LARK) --upgrade lark==1.2.2
	@touch $@

# Drawings are read by Graphviz in the tests; where it cannot be installed, by a parser of its language (pydot).
.venv/graphviz-ready: .venv/made
	@command -v dot >/dev/null || { echo "— set-up: graphviz, from the system's packages (once)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq graphviz; } >.venv/graphviz.log 2>&1; } \
		|| echo "  that did not work (.venv/graphviz.log): the drawings are read by pydot instead"
	@touch $@

# Tests of the store start servers of their own; without the program they say so and are not run.
.venv/redis-ready: .venv/made
	@command -v redis-server >/dev/null || { echo "— set-up: redis-server, from the system's packages (once)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server; } >.venv/redis.log 2>&1; } \
		|| echo "  that did not work (.venv/redis.log): install redis-server, then run this again"
	@! command -v redis-server >/dev/null || touch $@

# promtool checks the alert rules, and the real Prometheus reads the gateway; without them those tests say so and are not run.
.venv/prometheus-ready: .venv/made
	@command -v promtool >/dev/null || { echo "— set-up: prometheus, from the system's packages (once)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus; } \
		>.venv/prometheus.log 2>&1; } || echo "  that did not work (.venv/prometheus.log): those tests are skipped"
	@touch $@

# Editors that the tests of the language server start; without one, its test says so and is skipped.
.venv/server-editors-ready: .venv/made
	@command -v nvim >/dev/null && command -v emacs >/dev/null || { echo "— set-up: neovim and emacs, from the system's packages (once)"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq neovim emacs-nox elpa-eglot; } >.venv/editors.log 2>&1; } \
		|| echo "  that did not work (.venv/editors.log): the tests that start them are skipped"
	@touch $@
