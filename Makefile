# Everything a person or CI runs. Each target prints what it does, may be run twice, and fails with cause and cure.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
PYTEST := $(BIN)/pytest
HOT := $(shell find broker/src spark-apps/src -name '*.pyx' -o -name '*.pxi' -o -name '_*.h') broker/build_hot.py

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1|/' | column -t -s '|'

# ---- environment -----------------------------------------------------------------------------
$(BIN)/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 2; }
	echo "making the environment in .venv"
	$(PYTHON) -m venv .venv || { echo "the venv module is missing: apt-get install python3-venv"; exit 2; }
	$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt
	touch $(BIN)/uv

# The lists are whole: --no-deps keeps uv from unpacking Spark, once more each time, to read what it needs.
.venv/.run: $(BIN)/uv requirements/run.txt pyproject.toml
	@echo "installing the packages of requirements/run.txt"
	UV_LINK_MODE=copy $(BIN)/uv pip install -q --no-deps --require-hashes -r requirements/run.txt
	UV_LINK_MODE=copy $(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	touch $@

.venv/.dev: .venv/.run requirements/dev.txt
	@echo "installing the packages of requirements/dev.txt"
	UV_LINK_MODE=copy $(BIN)/uv pip install -q --no-deps --require-hashes -r requirements/dev.txt
	touch $@

.venv/.hot: .venv/.run $(HOT)
	@$(PY) broker/build_hot.py
	touch $@

.PHONY: setup setup-dev system
setup: .venv/.run .venv/.hot ## environment and compiled modules
setup-dev: setup .venv/.dev
system: ## JDK, Maven, gcc, chromium, node for the tests: installed (root on Debian) or named
	@bash tests/support/system.sh

# ---- the two commands ------------------------------------------------------------------------
.PHONY: run test test-all test-full test-pieces test-fast tree definitions check interop interop-others chaos simulate fuzz
run: setup ## the demo: both protocols and Spark agree on real data
	@$(BIN)/imago demo $(ARGS)

# Tests start hundreds of processes: what Python compiles is kept, whatever the environment says.
test test-full test-pieces test-fast interop interop-others .venv/.compiled-tests: export PYTHONDONTWRITEBYTECODE :=
test test-full test-pieces test-fast interop interop-others .venv/.compiled-tests: export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
PURE := not processes and not interop and not others and not spark and not zookeeper and not apiserver
# Tests that start processes mostly wait for them: three workers a core, within reason.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 4 ? 12 : 3 * n)))
SHARED := $(PYTEST) -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
NO_KUBERNETES := not others and not apiserver
# What reads, copies and walks in pieces, once more with pieces of a few hundred bytes.
IN_PIECES := tests/log tests/broker/replication tests/simulation/test_seeds.py::test_no_seed_breaks_an_invariant_with_real_stores

# In a new environment every worker would compile every test, for 17 s each: two share that beforehand.
HALF = $(PYTEST) --collect-only -qq $$(find tests -name 'test_*.py' | sort | awk 'NR % 2 == $(1)')
.venv/.compiled-tests: | setup-dev
	@echo "compiling the tests"
	{ $(call HALF,0) & $(call HALF,1); wait; } > /dev/null || true  # what is wrong with a test, its run says
	touch $@

# JVMs that find their classes in an archive start in half the time; the tests start a hundred.
.venv/.archives: .venv/.run | setup-dev system
	@echo "archiving classes of ZooKeeper and Spark"
	rm -f .venv/*.jsa
	PYTHONPATH=tests/support $(PY) -m imago_testing.java.archives > .venv/archives.log 2>&1 || { cat .venv/archives.log; exit 1; }
	grep 'was not written' .venv/archives.log || true
	touch $@

# Tests of the tree: names, rights, reasons, made files, limits. Whatever is renamed or added, they say what lacks.
TREE := tests/test_layout.py tests/test_classes.py tests/test_limits.py tests/test_words.py tests/test_pages.py \
  tests/test_folders.py tests/test_places.py tests/test_room.py tests/test_sharing.py tests/test_traces.py \
  tests/test_leaks.py tests/test_ports.py tests/wire/remoting/test_header_classes.py \
  tests/k8s_operator/spec/test_crd.py tests/k8s_operator/contents/test_words.py \
  tests/k8s_operator/test_pages.py tests/k8s_operator/test_reasons.py \
  tests/k8s_operator/test_stories_watch.py tests/k8s_operator/test_entrances.py \
  tests/cli/test_documented.py tests/broker/rocketmq/tools/test_documented_codes.py \
  tests/broker/rocketmq/test_features.py tests/broker/config/test_reference.py tests/broker/access/matrix \
  tests/k8s_operator/manifests/test_render.py tests/chart/test_rights.py tests/chart/test_files.py \
  tests/chart/test_hooks.py tests/chart/test_monitoring.py tests/chart/test_render.py \
  tests/chart/test_samples.py

test: setup-dev system .venv/.compiled-tests .venv/.archives ## every area without Kubernetes, with few examples: ten to twenty minutes on two cores
	@IMAGO_REQUIRE_COMPILED=1 $(PY) broker/build_hot.py
	IMAGO_EXAMPLES=few $(SHARED) -m '$(NO_KUBERNETES) and not full'

test-all: test-full test-pieces ## the same in full, as CI runs it: every example, version and limit
test-full: setup-dev system .venv/.compiled-tests .venv/.archives
	@IMAGO_REQUIRE_COMPILED=1 $(PY) broker/build_hot.py
	$(SHARED) -m '$(NO_KUBERNETES)'
test-pieces: setup-dev system .venv/.compiled-tests
	@IMAGO_LIMITS=small $(SHARED) -m '$(PURE) and not shipped_limits' $(IN_PIECES)

test-fast: setup-dev ## the pure tests only, without the long searches and with few examples
	@IMAGO_EXAMPLES=few $(PYTEST) -n 2 -m '$(PURE) and not simulation'

tree: setup-dev ## tests of the tree: names, rights, reasons, limits, and what is made from it: half a minute
	@$(PYTEST) -q -n 2 --timeout 300 -m 'not others and not apiserver and not promcheck' $(TREE)

definitions: setup-dev ## our definitions, an object of each kind and install.yaml on an API server, once e2e has built one
	@PYTHONPATH=e2e/cluster $(PY) -m rig built || { echo "definitions: not tried, make e2e-smoke builds an API server"; exit 0; }
	$(PYTEST) -q -n 0 -m apiserver tests/k8s_operator/apiserver/test_definitions.py -k 'taken or columns'

check: setup-dev tree definitions ## format, lint, types, imports, tests of the tree, spelling
	@echo "ruff format"; $(BIN)/ruff format --check .
	echo "ruff check"; $(BIN)/ruff check .
	echo "mypy"; $(BIN)/mypy
	echo "import-linter"; $(BIN)/lint-imports --no-cache > .venv/imports.log || { cat .venv/imports.log; exit 1; }
	echo "codespell"; $(BIN)/codespell

interop: setup-dev system ## the original Java clients only (INTEROP_TARGET=imago, metaq-original or rocketmq-original)
	@$(PYTEST) -m interop tests/interop

interop-others: setup-dev ## RocketMQ's clients in Go, C++ and Node, and all of mqadmin; needs Go, and Node with npm
	@$(PYTEST) -m others tests/interop

chaos: setup-dev system ## break a cluster under load (root): make chaos MINUTES=10 ARGS='--rate-min 0 --closed'
	@PYTHONPATH=tests/support:. $(PY) -m imago_testing.chaos.cluster --minutes $(or $(MINUTES),5) $(ARGS)

simulate: setup-dev ## seeded simulation of a shard: make simulate SEEDS=100000 FROM=0, or STORES=1, MODEL=full, OPERATOR=1
	@if [ -n "$(OPERATOR)" ]; then PYTHONPATH=operator/src:tests/support $(PY) -m imago_testing.operated.states --seeds $(or $(SEEDS),2000) --from $(or $(FROM),0); exit; fi
	PYTHONPATH=tests/support:. $(PY) -m imago_testing.simulation --seeds $(or $(SEEDS),2000) --from $(or $(FROM),0) --model $(or $(MODEL),no) $(if $(STORES),--stores)

fuzz: setup-dev ## fuzz every decoder, and a broker's ports: make fuzz SECONDS=60 ARGS='--record FILE'
	@PYTHONPATH=tests/support:. $(PY) -m tests.fuzz.driver --seconds $(or $(SECONDS),60) $(ARGS)
	@PYTHONPATH=tests/support:. $(PY) -m tests.fuzz.served --seconds $(or $(SECONDS),60) $(ARGS)

# ---- measurements ----------------------------------------------------------------------------
.PHONY: bench bench-gate bench-peers bench-spark bench-failover bench-replicated
bench: setup-dev ## workloads against a broker pinned to one core; table and bench/results/*.json
	@PYTHONPATH=tests/support:. $(PY) -m bench.run $(ARGS)
	@PYTHONPATH=tests/support:. $(PY) -m bench.metaq
	@PYTHONPATH=tests/support:. $(PY) -m bench.scale
	@PYTHONPATH=tests/support:. $(PY) -m bench.tls
	@PYTHONPATH=tests/support:. $(PY) -m bench.client
	@PYTHONPATH=tests/support:. $(PY) -m bench.sdk --only imago
	@PYTHONPATH=tests/support:. $(PY) -m bench.idle_sdk
bench-gate: setup-dev system ## fail when the hot path needs 5 % more instructions than recorded
	@PYTHONPATH=tests/support:. $(PY) -m bench.gate $(ARGS)
bench-peers: setup-dev system ## the same generator against the original MetaQ and RocketMQ
	@PYTHONPATH=tests/support:. $(PY) -m bench.peers $(ARGS)
	@PYTHONPATH=tests/support:. $(PY) -m bench.java_backlog
	@PYTHONPATH=tests/support:. $(PY) -m bench.java_push
	@PYTHONPATH=tests/support:. $(PY) -m bench.sdk
bench-failover: setup-dev system ## gaps that clients see: make bench-failover ARGS='--events 50'
	@PYTHONPATH=tests/support:. $(PY) -m bench.failover $(ARGS)
bench-replicated: setup-dev ## what copies cost, and how a member that is behind catches up
	@PYTHONPATH=tests/support:. $(PY) -m bench.replicated $(ARGS)
	@PYTHONPATH=tests/support:. $(PY) -m bench.catch_up
bench-spark: setup-dev ## the Spark source beside Kafka's: make bench-spark ARGS="--rows 4000000"
	@PYTHONPATH=tests/support:. $(PY) -m bench.spark $(ARGS)

# ---- Kubernetes and images -------------------------------------------------------------------
.PHONY: images cluster-up cluster-down e2e-images e2e e2e-smoke
cluster-up: ## a Kubernetes of three nodes on this machine
	@PYTHONPATH=e2e/cluster $(PYTHON) -m rig up
	echo "use it: PYTHONPATH=e2e/cluster $(PYTHON) -m rig run kubectl get nodes"
cluster-down: ## stop it and forget what was in it
	@PYTHONPATH=e2e/cluster $(PYTHON) -m rig down --clean

e2e-images: setup-dev ## the images of that cluster: built where they changed, brought to its nodes (root)
	@PYTHONPATH=e2e/cluster:e2e/support:tests/support:broker/src $(PY) e2e/images.py $(ARGS)

BUILDERS ?= docker podman buildah
IMAGES := $(patsubst %/Dockerfile,%,$(wildcard */Dockerfile))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
images: ## an image for each Dockerfile, by docker, podman or buildah, whichever runs (IMAGE_FLAGS='--build-arg BASE=…')
	@for builder in $(BUILDERS); do $$builder info >/dev/null 2>&1 && break; builder=; done
	[ -n "$$builder" ] || { echo "no image builder works here: start docker's daemon, or install podman or buildah"; exit 2; }
	for part in $(IMAGES); do
	  echo "building imago/$$part:$(VERSION) by $$builder"
	  $$builder build $(IMAGE_FLAGS) -f $$part/Dockerfile -t imago/$$part:$(VERSION) .
	done

DIST := dist
wheel: setup ## sdist and wheel with compiled modules, in dist/ (needs a C compiler and Python's headers)
	@echo "building sdist and wheel in $(DIST)/: the hot modules are compiled anew, which takes two minutes"
	IMAGO_REQUIRE_COMPILED=1 $(BIN)/uv build -q --clear --no-build-isolation --python $(PY) --out-dir $(DIST)
	ls $(DIST)

e2e: setup-dev ## every story on a Kubernetes of our own (root), or on that of E2E_KUBECONFIG
	@bash e2e/run.sh $(ARGS)
e2e-smoke: setup-dev ## the few stories that show whether anything works at all
	@E2E_IMAGES='zookeeper broker operator clients' bash e2e/run.sh -m smoke $(ARGS)

# ---- what is made from the tree --------------------------------------------------------------
.PHONY: docs wheel lock clean
docs: setup-dev ## everything that is made: definitions, references, chart, install.yaml, tables, plots
	PYTHONPATH=tools $(PY) -m imago_tools.broker_keys operator/src/imago_operator/broker_rules
	PYTHONPATH=operator/src $(PY) -m imago_operator.spec.crd manifests/crds
	PYTHONPATH=operator/src $(PY) -m imago_operator.pipelines.plain manifests/spark
	PYTHONPATH=operator/src $(PY) -m imago_operator.spec.reference docs/reference/crds.md
	PYTHONPATH=operator/src $(PY) -m imago_operator.reasons.page docs
	PYTHONPATH=operator/src:tools $(PY) -m imago_tools.chart_files
	PYTHONPATH=operator/src:tools:e2e/cluster $(PY) -m imago_tools.chart_helm
	PYTHONPATH=tools:tests/support $(PY) -m imago_tools.rocketmq_codes
	PYTHONPATH=tools $(PY) -m imago_tools.made
	@PYTHONPATH=tests/support:. $(PY) -m bench.plots

lock: $(BIN)/uv ## renew requirements/*.txt from pyproject.toml
	@bash requirements/lock.sh

clean: ## remove everything that was made here
	@rm -rf .venv build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache bench/build
	find broker operator spark-apps tests bench tools e2e charts -name __pycache__ -prune -exec rm -rf {} +
	find broker/src \( -name '*.so' -o -name '*.c' \) -delete
