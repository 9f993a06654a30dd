# Everything runs from .venv, which `make env` builds from requirements.lock. Another Python: make env PYTHON=/path/to/python

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
LOCKED := $(VENV)/.locked
INSTALLED := $(VENV)/.installed
CONF ?= conf/demo.yml
LAB ?=

.DEFAULT_GOAL := help
.PHONY: help env browser promtool archives demo lab test lint style types imports test-unit bench chaos docs audit lock links site release clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(INSTALLED) ## build .venv from the lock (again only when the lock changes)

demo: env ## three local Kafka clusters, a mirror between them, and a look at the result
	$(BIN)/python notebooks/demo --conf $(CONF)

# It listens on loopback only; from another machine: make lab LAB="--ip 0.0.0.0", or an SSH tunnel to its port.
lab: env ## JupyterLab with the notebooks
	$(BIN)/jupyter lab --notebook-dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB)

# The tests of one law: .venv/bin/python -m pytest --law A; those of all laws: -m law.
# Up to four at a time, each with brokers and a Spark of its own: flows wait for commits, and three of them leave a third of two
# cores idle (vmstat, 2026-11-23); of five, browsers and mirrors that stay on got too little to be in time. A worker takes about
# 3.5 GB. Byte code is kept whatever the environment says: without it, each process of the package, and there are hundreds,
# compiles for 0.4 CPU-s.
WORKERS ?= $(or $(shell awk '/^MemTotal/ {n = int($$2 / 4200000); print (n < 2 ? 2 : n > 4 ? 4 : n)}' /proc/meminfo 2>/dev/null),3)
test: export PYTHONDONTWRITEBYTECODE =
test: env browser promtool ## lint and the whole test suite (real brokers, Spark and Delta)
	@$(MAKE) --no-print-directory --jobs 3 $(LINT) archives
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Without one, the browser tests are not run, which the last lines of `make test` say and CI refuses; all others are tested.
# Debian's Chromium recommends a desktop's services, systemd among them; the tests need it and one font.
CHROMIUM := chromium fonts-liberation
browser: ## a Chromium for the browser tests, from Debian where none is found: as root, or with BROWSER=sudo
	@for name in chromium chromium-browser google-chrome-stable google-chrome; do \
		if command -v "$$name" >/dev/null 2>&1; then exit 0; fi; \
	done; \
	if ! command -v apt-get >/dev/null 2>&1; then echo "make browser: no Chromium was found, and no apt-get to install one"; exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; elif [ "$(BROWSER)" = sudo ]; then as=sudo; else \
		echo "make browser: no Chromium was found; next: make browser BROWSER=sudo"; exit 0; fi; \
	$$as apt-get update -qq; \
	new=$$(apt-get install -s -qq --no-install-recommends $(CHROMIUM) | sed -n 's/^Inst \([^ ]*\).*/\1/p'); \
	echo "make browser: apt-get installs or upgrades" $$(echo "$$new" | wc -w) "packages for the browser tests:" $$new; \
	$$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(CHROMIUM) >/dev/null || true

# The package itself would start a server and bring fonts and scripts; the alert rules need one file of it. Without it, their
# test fails and says what brings it.
PROMTOOL := build/promtool
promtool: ## build/promtool for the tests of the alert rules, from Debian where none is found
	@if command -v promtool >/dev/null 2>&1 || [ -x $(PROMTOOL) ] || ! command -v apt-get >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; elif sudo -n true >/dev/null 2>&1; then as="sudo -n"; else as=true; fi; \
	echo "make promtool: no promtool was found; apt-get downloads Debian's"; \
	rm -rf $(PROMTOOL).part && mkdir -p $(PROMTOOL).part && cd $(PROMTOOL).part && \
	{ apt-get download -qq prometheus 2>/dev/null || { $$as apt-get update -qq && apt-get download -qq prometheus; }; } && \
	dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool && \
	mv usr/bin/promtool ../promtool && cd - >/dev/null && rm -rf $(PROMTOOL).part || true

# Before the tests, which leave no core to it: a JVM that finds no archive loads its classes one by one.
archives: env
	$(BIN)/python -m tests.archives

test-unit: env promtool ## the tests that need neither a JVM nor a socket
	$(BIN)/python -m pytest tests/unit

# mypy takes as long as all the others, which run beside it.
LINT := types links imports style
lint: env ## style, types, the direction of imports, and the links of the documentation
	@$(MAKE) --no-print-directory --jobs 2 $(LINT)

style: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env
	$(BIN)/mypy

imports: env
	$(BIN)/lint-imports

bench: env ## latency, cores, CPU and start beside MirrorMaker 2; SUITES="drain --targets 1" for a part
	$(BIN)/python -m tests.bench $(SUITES)

SEED ?=
MINUTES ?= 3
BROKERS ?= 1
SCENARIO ?=
chaos: env ## faults by chance and a checker beside them (docs/faults.md): SEED=7 MINUTES=5 BROKERS=3 SCENARIO=target-hang,mirror-kill
	$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) --minutes $(MINUTES) --brokers $(BROKERS) --only "$(SCENARIO)" --history

docs: env ## the pages of docs/ that are made from code
	$(BIN)/python -m tests.docs

# It asks a public vulnerability service, PyPI's by default: AUDIT="-s osv" for another. Without an answer it fails.
AUDIT ?=
audit: env ## known weaknesses of what is locked; needs a network
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock $(AUDIT)

lock: env ## resolve requirements.lock anew from pyproject.toml and requirements.in
	$(BIN)/uv pip compile pyproject.toml requirements.in --all-extras --universal --python-version 3.10 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade --quiet \
		--output-file requirements.lock

links: env ## the documentation as a site in build/site, with notebooks as they are; fails on a link that leads nowhere
	$(BIN)/python -m tests.site

site: env ## the same with notebooks that are executed, each on brokers of its own; takes some minutes
	$(BIN)/python -m tests.site --execute

release: env ## wheel and sdist of HEAD in dist/: built twice, compared, checked and installed
	$(BIN)/python -m tests.release

clean: ## remove .venv, caches and the lake of the demo
	rm -rf $(VENV) build dist *.egg-info lake spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A command that is found need not work: version managers put shims on the path that only print an error. And a Python
# may lack what makes a virtual environment, which Debian ships as a package of its own.
# uv installs in 40 s what takes pip 270 (2026-11-30); it asks pip's index, and pip installs where uv cannot. CI reads few of the
# modules, and keeps the byte code of those.
$(LOCKED): requirements.lock
	@python=; bare=; \
	for candidate in $(or $(PYTHON),python3.12 python3.11 python3.10 python3); do \
		"$$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1 || continue; \
		if "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then python=$$candidate; break; fi; \
		bare=$${bare:-$$candidate}; \
	done; \
	if [ -z "$$python" ] && [ -n "$$bare" ]; then \
		echo "make env: $$bare has no venv module, so no environment was made." >&2; \
		echo "Next: install it (Debian, Ubuntu: apt-get install python3-venv), then run make again." >&2; \
		exit 1; \
	elif [ -z "$$python" ]; then \
		echo "make env: no working Python 3.10, 3.11 or 3.12 was found, so no environment was made." >&2; \
		echo "Next: install one, or name it: make env PYTHON=/path/to/python3.12" >&2; \
		exit 1; \
	fi; \
	echo "make env: $(VENV) with $$("$$python" --version) ($$python)"; \
	"$$python" -m venv --clear $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.txt
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r $(VENV)/uv.txt
	@index=$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}; \
	$(BIN)/uv pip install --system-certs $${index:+--default-index "$$index"} --python $(BIN)/python --require-hashes --quiet \
		$(if $(CI),,--compile-bytecode) -r requirements.lock || \
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(INSTALLED): $(LOCKED) pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation --quiet -e .
	@touch $@
