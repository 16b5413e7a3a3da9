# SPDX-License-Identifier: Apache-2.0
# One entry point: make setup | demo | check | test | test-all | bench-fit | bench-margin. Every target sets up what it needs:
# `setup` what fit and run need on this host's processor, `setup-dev` what tests need besides.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Hundreds of tests start the program anew: it is compiled once, beside what is built.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(BUILD)/pycache
# What `make bench` runs; a bundle of the benchmarks' image is one more: BENCHED=native,vm:stock,vm:build/bench/bundle.
# crun is a runtime that a file describes. UNIXBENCH_SOURCE, IOZONE_SOURCE, NETPERF_SOURCE: trees of the published
# programs, which `make bench-published` then runs in place of ours.
SUITES ?= startup,efficiency,memory,isolation,unixbench
comma := ,
# Two processes share the tests; tests/conftest.py says which stay together.
IN_TWO := --numprocesses 2 --dist loadscope --no-loadscope-reorder
# Minutes that `make bench` may take.
WITHIN ?= 85
BENCHED ?= native,containerd,docker,gvisor,lxc,nspawn,podman,examples/runtimes/crun.toml,vm:stock

PUBLISHED := $(foreach name,unixbench iozone netperf,$(if $($(shell echo $(name) | tr a-z A-Z)_SOURCE),--$(name)-source $($(shell echo $(name) | tr a-z A-Z)_SOURCE)))

.PHONY: help lab family setup setup-cross setup-dev setup-fleet wheel share demo examples check format unit contract system attack test test-all test-times mutants bench-fit bench-margin bench-load bench-load-lab bench-load-rates bench-load-servers bench-load-changes bench-host bench-containers-on-host bench-watched bench-remedies bench-analyze setup-host setup-bench bench-image bench-engines bench-lab bench-run-lab bench-loongson bench bench-published bench-bundle bench-kvm bench-aa bench-overhead bench-start bench-exec bench-streams compare-quality fleet-sim fuzz docs clean

help:
	@echo "make demo           fit the lighttpd example: image to proven VM, with report (sets up first);"
	@echo "                    MARGIN=none|reachable|server|reachable+server chooses what is kept beside what was demanded"
	@echo "make test           the tests: lint, types, layers, unit, contract, system (sets up first)"
	@echo "make test-all       the same, and what takes minutes and seldom fails"
	@echo "make test-times     how long the last make unit and the last .ci/run took, and where the time went"
	@echo "make mutants        put 400 faults into the program and name those that no test catches (an hour)"
	@echo "make setup          what fit and run need on this host's processor: system packages (asks for root where some are"
	@echo "                    missing), virtual environment, native parts"
	@echo "make setup-cross    the emulators and cross compilers of the other processors (asks for root)"
	@echo "make setup-fleet    what vmtailor fleet needs, with all of setup"
	@echo "make setup-dev      what tests, checks and generated pages need, with all of setup-cross (asks for root)"
	@echo "make wheel          build/wheel/vmtailor-*.whl, for hosts that only run bundles"
	@echo "make share          build/share: manual pages and completions of shells, as the wheel has them"
	@echo "make check          lint, types, import layers, generated docs"
	@echo "make unit|contract|system   one kind of tests"
	@echo "make attack         everything hostile that the tests know: images, bundles, guests, logs, terminals"
	@echo "make bench-fit      fit all examples and print the table of figures (docs/explanation/results.md);"
	@echo "                    ARCH=arm64 (mips64el, riscv64) fits hello and lighttpd for another processor, with both margins;"
	@echo "                    BENCH_ARGS=--cold begins with nothing but downloads"
	@echo "make bench-margin   fit further images with each margin, probe what newly fails (says its hours; resumable)"
	@echo "make bench-load-rates  the demo under load, on the packaged kernel and its own: instructions a request, latencies,"
	@echo "                    and the rate at which it breaks (half an hour; resumable); a part of bench-load"
	@echo "make bench-load-servers  redis and PostgreSQL under load, likewise (fits both; an hour; resumable); a part of bench-load"
	@echo "make bench-load-lab  the rate at which the demo breaks under KVM, asked from inside and by the lab (twenty minutes; resumable); a part of bench-load"
	@echo "make bench-load     the same, and what changes under load save a request of the examples, beside published figures (says its hours; resumable)"
	@echo "make bench-host     fit the example's machine that hosts containers, hold its figures against their goals (hours; resumable)"
	@echo "make bench-containers-on-host  count containers in that machine, as it is and as fitted (root; says its hours; resumable)"
	@echo "make bench-watched  watch containers on that machine, as it is and as fitted: the runs of a published thesis (resumable)"
	@echo "make bench-remedies   each remedy that earlier work published, tried on today's machine (hours; resumable)"
	@echo "make setup-bench    the packages of container engines, which nothing but benchmarks needs (asks for root)"
	@echo "make bench          every runtime and suite in the quick form, within 85 minutes (WITHIN=60: other minutes),"
	@echo "                    and the report; what does not fit is named (root)"
	@echo "make bench-published  the published protocols in full, 7 hours; goes on where it was interrupted (root);"
	@echo "                    SUITES=startup: a part of them; BENCHED=native,podman: in other runtimes than the published;"
	@echo "                    UNIXBENCH_SOURCE=, IOZONE_SOURCE=, NETPERF_SOURCE=DIR: the published programs in place of ours"
	@echo "make setup-host     what builds the machines of bench-host and bench-remedies (they install it themselves)"
	@echo "make bench-bundle   fit the image of the benchmarks, to be measured as vm:build/bench/bundle"
	@echo "make bench-engines  a stock machine with the engines in it: vmtailor bench --inside vm:build/bench/engines.raw"
	@echo "make bench-lab      engines beside monitors under KVM, in one emulated machine, counted (root; about an hour; resumable)"
	@echo "make bench-run-lab  what vmtailor run costs on a host with KVM, counted by part, beside podman (ten minutes)"
	@echo "make bench-loongson containers on an emulated Loongson-3, none to four at once, beside published figures (root; says its length; resumable)"
	@echo "make bench-kvm      start-up and kernel work, machines timed beside engines: where KVM works (root)"
	@echo "make bench-aa       how often bench is wrong, from runtimes measured against themselves (root, two to three hours; resumable)"
	@echo "make bench-overhead what the harness of bench adds to its figures"
	@echo "make bench-streams  processor time of 64 MiB through a container and back (BUNDLE=FOLDER, whose image has cat)"
	@echo "make bench-exec     how long a machine takes for exec, in its processor time (BUNDLE=FOLDER, whose image has sh and true)"
	@echo "make bench-start    what a second run costs beside its machine, in pairs with QEMU by hand (BUNDLE=FOLDER)"
	@echo "make lab            an emulated machine in which KVM works, for verify --lab; ARCH=arm64 for arm64's bundles"
	@echo "make family         a kernel on which any image starts at once, in build/family (FAMILY=x86_64,arm64: for these)"
	@echo "make bench-analyze  time the analysis of 100 MB of each kind of log"
	@echo "make compare-quality  how often compare is wrong, from thirty real boots"
	@echo "make fleet-sim      what a task costs the scheduler of a fleet, with workers that only wait (FLEET_ARGS=--workers 200)"
	@echo "make fuzz           a million inputs through every parser"
	@echo "make docs           write the generated pages of docs/reference again"

setup: $(STAMP)

setup-dev: $(DEV_STAMP)

$(STAMP): requirements.lock pyproject.toml setup.py tools/apt_packages.py src/vmtailor/data/tools.toml $(wildcard src/vmtailor/data/monitors/*.toml) $(shell find native -type f)
	sh tools/install-packages.sh tools/apt_packages.py setup
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	$(MAKE) --silent -C native OUT=$(CURDIR)/src/vmtailor/_native
	touch $@

$(DEV_STAMP): requirements-dev.lock $(STAMP)
	sh tools/install-packages.sh tools/apt_packages.py dev
	$(PIP) install --require-hashes -r requirements-dev.lock
	touch $@

# What `vmtailor fleet` needs besides, in the versions that tests have.
setup-fleet: setup
	mkdir -p $(BUILD)
	grep -ho '^[A-Za-z0-9._-]*==[^ ]*' requirements.lock requirements-dev.lock > $(BUILD)/pins.txt
	$(PIP) install --no-build-isolation --constraint $(BUILD)/pins.txt -e '.[fleet]'

# Fits of images for other processors; their guest programs are compiled when they are first used.
setup-cross: setup
	sh tools/install-packages.sh tools/apt_packages.py cross

# With the guest programs of the other processors whose compiler is here. What an older build left would go into it.
wheel: setup
	rm -rf $(BUILD)/lib $(BUILD)/lib.* $(BUILD)/share-files $(BUILD)/bdist.* $(BUILD)/wheel
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(BUILD)/wheel .
	@echo "$$(echo $(BUILD)/wheel/*.whl)"

# Manual pages and the completions of shells, for a checkout; a wheel has its own.
share: setup
	rm -rf $(BUILD)/share
	$(BIN)/python tools/share_files.py $(BUILD)

requirements.lock requirements-dev.lock: | pyproject.toml

# An emulated machine in which KVM works: vmtailor verify BUNDLE --on MONITOR --lab. Built again only where it would differ.
lab: $(if $(filter command line,$(origin ARCH)),setup-cross,setup)
	$(BIN)/python tools/lab.py $(if $(filter command line,$(origin ARCH)),--arch $(ARCH)) $(LAB_ARGS)

# A kernel on which any image starts: vmtailor run --family oci:build/family IMAGE. It is found in the cache, too.
family: $(if $(FAMILY),setup-cross,setup)
	$(BIN)/vmtailor family build $(if $(FAMILY),--arch $(FAMILY)) -o oci:$(BUILD)/family

examples: setup
	for name in hello lighttpd nginx redis; do $(BIN)/python examples/build.py $$name $(BUILD)/images/$$name || exit 1; done

demo: setup
	$(BIN)/python examples/build.py lighttpd $(BUILD)/images/lighttpd
	$(BIN)/vmtailor fit oci:$(BUILD)/images/lighttpd --exercise examples/lighttpd/exercise.toml $(if $(MARGIN),--margin $(MARGIN)) -o $(BUILD)/demo

check: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	find native -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run --Werror
	$(MAKE) --silent -C native STRICT=-Werror OUT=$(CURDIR)/$(BUILD)/native-check all others
	find examples benchmarks tests/guests -name '*.c' -print0 | xargs -0 -n 1 $(CC) -std=c11 -O2 -Wall -Wextra -Werror -Inative -c -o /dev/null
	$(BIN)/python tools/cli_reference.py --check
	$(BIN)/python tools/advice_reference.py --check
	$(BIN)/python tools/load_reference.py --check
	$(BIN)/python tools/docker_run_reference.py --check
	$(BIN)/python tools/monitor_needs.py --check

format: setup-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	find native -name '*.[ch]' -print0 | xargs -0 clang-format -i

# Seconds: with few examples of each property. `make test` runs these tests in full.
unit: setup-dev
	$(BIN)/pytest -q $(IN_TWO) -m "not slow and not lengthy" --hypothesis-profile=quick --junitxml=$(BUILD)/times/unit.xml tests/unit

contract: setup-dev
	$(BIN)/pytest -q $(IN_TWO) tests/contract

system: setup-dev
	$(BIN)/pytest -q $(IN_TWO) tests/system

attack: setup-dev
	$(BIN)/pytest -q -m attack tests/system --ignore tests/system/test_hostile_guest.py & fitted=$$!; \
	  $(BIN)/pytest -q -m attack tests/unit tests/contract tests/system/test_hostile_guest.py; rest=$$?; \
	  wait $$fitted && exit $$rest

test: check
	$(BIN)/pytest $(IN_TWO) -m "not slow" --junitxml=$(BUILD)/times/test.xml

test-times: setup
	$(BIN)/python tools/test_times.py

# Faults put into the program one at a time, to see which of them no test catches (an hour). MUTANTS_ARGS="--groups keys".
MUTANTS := $(BUILD)/mutants-venv
mutants: $(MUTANTS)/.installed
	$(MUTANTS)/bin/python tools/mutants.py $(MUTANTS_ARGS)

$(MUTANTS)/.installed: tools/mutants.lock $(DEV_STAMP)
	test -x $(MUTANTS)/bin/python || $(BIN)/python -m venv $(MUTANTS)
	$(MUTANTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tools/mutants.lock
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$(echo $(MUTANTS)/lib/python3*/site-packages)/project.pth
	touch $@

test-all: check setup-host
	sh tools/install-packages.sh tools/test_packages.py
	$(BIN)/pytest $(IN_TWO)

bench-fit: $(if $(filter command line,$(origin ARCH)),setup-cross,setup)
	$(BIN)/python tools/bench_fit.py --out $(BUILD)/bench-fit$(if $(filter command line,$(origin ARCH)),-$(ARCH)).json \
	  $(if $(filter command line,$(origin ARCH)),--arch $(ARCH) --only hello lighttpd --margins none default) $(BENCH_ARGS)

bench-margin: setup
	$(BIN)/python tools/bench_margin.py --out $(BUILD)/bench-margin $(BENCH_ARGS)

# What makes the example's machines, and disks that start by a loader of their own.
setup-host: setup
	sh tools/install-packages.sh examples/debian-vm/packages.py

# Every change of data/changes/load on the examples; BENCH_ARGS="--only lighttpd --changes optimise-more": some.
bench-load-changes: setup-dev
	$(BIN)/python tools/bench_load_changes.py --out $(BUILD)/bench-load $(BENCH_ARGS)

bench-load-rates: setup
	test -f $(BUILD)/demo/bundle.json || $(MAKE) demo
	$(BIN)/python tools/bench_load_rates.py --bundle $(BUILD)/demo --out $(BUILD)/bench-load $(BENCH_ARGS)

bench-load-lab: lab
	test -f $(BUILD)/demo/bundle.json || $(MAKE) demo
	$(BIN)/python tools/bench_load_lab.py --bundle $(BUILD)/demo --out $(BUILD)/bench-load $(BENCH_ARGS)

# The same of redis and PostgreSQL: examples/redis, benchmarks/margin/postgresql.
bench-load-servers: setup
	mkdir -p $(BUILD)/bench-load
	for folder in examples/redis benchmarks/margin/postgresql; do name=$${folder##*/}; made=$(BUILD)/bench-load/$$name; \
	  test -f $$made/bundle.json || { $(BIN)/python examples/build.py $$folder $(BUILD)/images/$$name && \
	    $(BIN)/vmtailor fit oci:$(BUILD)/images/$$name --exercise $$folder/exercise.toml -o $$made; } || exit 1; \
	  $(BIN)/python tools/bench_load_rates.py --bundle $$made --exercises $$folder --out $(BUILD)/bench-load/$$name-rates $(BENCH_ARGS) || exit 1; done

bench-load: bench-load-rates bench-load-lab bench-load-servers bench-load-changes

bench-host: setup-host
	$(BIN)/python tools/bench_host.py --out $(BUILD)/bench-host $(BENCH_ARGS)

bench-containers-on-host: setup-host setup-bench
	$(BIN)/python tools/bench_containers_on_host.py --out $(BUILD)/bench-host $(BENCH_ARGS)

bench-watched: setup-host
	$(BIN)/python tools/bench_watched.py --out $(BUILD)/bench-host $(BENCH_ARGS)

bench-remedies: setup-host
	$(BIN)/python tools/bench_remedies.py --out $(BUILD)/bench-remedies $(BENCH_ARGS)

setup-bench: setup
	sh tools/install-packages.sh tools/bench_packages.py

bench-image: setup
	$(BIN)/python examples/build.py benchmarks/image $(BUILD)/images/bench

# A stock machine with the engines in it, for --inside vm:build/bench/engines.raw.
bench-engines: setup
	mkdir -p $(BUILD)/bench
	$(BIN)/python examples/build.py benchmarks/engines $(BUILD)/bench/engines.raw

# Engines beside monitors under KVM, in one emulated machine: what one more start costs. The monitors start the demo's kernel.
# LAB_ROWS=native,kvm:FOLDER: other rows; BENCH_ARGS="--program firecracker=PATH": of bench.
LAB_ROWS ?= native,lxc,containerd,podman,docker,kvm:stock,kvm:$(BUILD)/demo,libkrun:$(BUILD)/demo
bench-lab: bench-image demo $(BUILD)/bench/lab.raw
	$(BIN)/vmtailor bench startup --only boot --on $(LAB_ROWS) --inside vm:$(BUILD)/bench/lab.raw --repeat 2 -o $(BUILD)/bench/lab.json $(BENCH_ARGS)

# No two builds of a disk have the same bytes, and its digest stands in the results: it is built again only where its
# description is newer, so that an interrupted run goes on.
$(BUILD)/bench/lab.raw: tools/bench_lab.py native/krun-start/krun-start.c $(wildcard benchmarks/engines/*.toml) | setup
	mkdir -p $(@D)
	$(BIN)/python tools/bench_lab.py $@

# Two starts of one container by `vmtailor run`, and podman's, in one emulated machine with KVM. The kernel is the demo's.
bench-run-lab: bench-image demo $(BUILD)/bench/run-lab.raw
	$(BIN)/python tools/bench_run_lab.py --bundle $(BUILD)/demo --image oci:$(BUILD)/images/bench $(BENCH_ARGS) $(BUILD)/bench/run-lab.raw

$(BUILD)/bench/run-lab.raw: tools/bench_lab.py $(wildcard benchmarks/engines/*.toml) | setup
	mkdir -p $(@D)
	$(BIN)/python tools/bench_lab.py --python $@

# Containers on a Loongson-3, as published work measured them: a machine with Docker and podman runs our set in none to
# four at once, three times. The page goes to build/bench/loongson.md. LOONGSON=native,podman LOONGSON_REPEAT=1: less.
LOONGSON ?= native,docker,podman
LOONGSON_REPEAT ?= 3
bench-loongson: setup-cross
	mkdir -p $(BUILD)/bench
	test -e $(BUILD)/images/unixbench-mips64el || $(BIN)/python examples/build.py benchmarks/unixbench $(BUILD)/images/unixbench-mips64el --arch mips64el
	test -e $(BUILD)/bench/engines-mips64el.raw || $(BIN)/python examples/build.py benchmarks/engines $(BUILD)/bench/engines-mips64el.raw --arch mips64el
	$(BIN)/vmtailor bench unixbench --quick --inside vm:$(BUILD)/bench/engines-mips64el.raw --on $(LOONGSON) --repeat $(LOONGSON_REPEAT) --n 0,1,2,3,4 \
	  --image oci:$(BUILD)/images/unixbench-mips64el -o $(BUILD)/bench/loongson.json $(BENCH_ARGS)
	$(BIN)/vmtailor bench report $(BUILD)/bench/loongson.json --data-n -o $(BUILD)/bench/loongson.md

bench: setup-bench bench-image
	mkdir -p $(BUILD)/bench
	$(BIN)/vmtailor bench all --quick --repeat 6 --within $(WITHIN) --on $(BENCHED) -o $(BUILD)/bench/quick.json
	$(BIN)/vmtailor bench report $(BUILD)/bench/quick.json -o $(BUILD)/bench/quick.html

# Suite by suite into one file, which goes on; a part of it: SUITES=startup BENCHED=native,podman. Without BENCHED, in the
# runtimes of the publications: natively, in Docker, in what OpenVZ and rkt became on today's kernels (LXC, systemd-nspawn);
# UnixBench natively in one instance (their "0 containers"), and in one to four containers of Docker, one way after the
# other; several copies are as many as there are processors, so that confined to one core there is one.
OURS := $(filter file,$(origin BENCHED))
PUBLISHED_IN := $(if $(OURS),native$(comma)docker$(comma)lxc$(comma)nspawn,$(BENCHED))
bench-published: setup-bench bench-image
	mkdir -p $(BUILD)/bench
	measure() { $(BIN)/vmtailor bench "$$@" $(PUBLISHED) -o $(BUILD)/bench/published.json || exit 1; }; \
	for suite in $(subst $(comma), ,$(SUITES)); do \
	  if test $$suite = unixbench; then \
	    for way in "1 copy, one core" "1 copy, all cores" "all cores"; do \
	      measure unixbench --repeat 3 --variant "$$way" --on $(if $(OURS),native$(comma)docker,$(BENCHED)) --n 1; \
	      measure unixbench --repeat 3 --variant "$$way" --on $(if $(OURS),docker,$(BENCHED)) --n 2,3,4; \
	    done; \
	  else measure $$suite --on $(PUBLISHED_IN); fi; done
	$(BIN)/vmtailor bench report $(BUILD)/bench/published.json -o $(BUILD)/bench/published.html
	$(BIN)/vmtailor bench report $(BUILD)/bench/published.json --published -o $(BUILD)/bench/published.md

bench-bundle: bench-image
	mkdir -p $(BUILD)/bench
	$(BIN)/vmtailor fit oci:$(BUILD)/images/bench --exercise benchmarks/image/exercise.toml -o $(BUILD)/bench/bundle

bench-kvm: setup-bench bench-bundle
	$(BIN)/vmtailor bench startup,unixbench --require-kvm --on $(BENCHED),vm:$(BUILD)/bench/bundle -o $(BUILD)/bench/kvm.json
	$(BIN)/vmtailor bench report $(BUILD)/bench/kvm.json -o $(BUILD)/bench/kvm.html

bench-aa: setup-bench bench-image
	$(BIN)/python tools/bench_aa.py $(BENCH_ARGS)

bench-overhead: setup
	$(BIN)/python tools/bench_overhead.py $(BENCH_ARGS)

bench-start: setup
	$(BIN)/python tools/start_cost.py $(BENCH_ARGS) $(BUNDLE) $(COMMAND)

bench-streams: setup
	$(BIN)/python tools/bench_streams.py $(BUNDLE) $(BENCH_ARGS)

bench-exec: setup
	$(BIN)/python tools/bench_exec.py $(BENCH_ARGS) $(BUNDLE) $(COMMAND)

bench-analyze: setup
	$(BIN)/python tools/bench_analyze.py

compare-quality: setup
	$(BIN)/python tools/compare_quality.py

# The real scheduler of a fleet, with workers that only wait.
fleet-sim: setup-dev
	$(BIN)/python tools/fleet_sim.py $(FLEET_ARGS)

fuzz: setup
	$(BIN)/python tests/fuzz/fuzz.py

docs: setup
	$(BIN)/python tools/cli_reference.py
	$(BIN)/python tools/advice_reference.py
	$(BIN)/python tools/load_reference.py
	$(BIN)/python tools/catalogue_reference.py
	$(BIN)/python tools/docker_run_reference.py
	$(BIN)/python tools/monitor_needs.py

clean:
	rm -rf $(BUILD) $(VENV)
