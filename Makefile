# `make` prints the targets; CONTRIBUTING.md explains the workflow.

BIN          := .build/bin
# The largest allowed plugin: it is loaded once per pod, so its size costs start-up time.
PLUGIN_BYTES := 2097152
SOAK_ROUNDS  ?= 10
# The build that `make upgrade` starts from: the last release's commit.
UPGRADE_FROM ?= $(lastword $(shell tail -n 1 .ci/releases))
# How many inputs each fuzz target gets, and which targets (all).
INPUTS       ?= 10000000
TARGETS      ?=
BENCH        ?= cargo run --release --package tests --bin pod-path-bench --
# Programs that the bench compares with the plugin.
YARDSTICKS   := bare-floor empty-main

# The image's architecture: amd64, arm64 or all (both, under one tag); by default the machine's.
ARCH         ?=

PLUGINS      := vcn-native vnic-attach
# What `make release` builds images for.
ARCHES       ?= amd64 arm64
PROGRAMS     := oke-node-agent oke-node-controller oke-cni-installer kubectl-oke_node oke-sandbox

HOST          = $(shell rustc -vV | sed -n 's/^host: //p')
STATIC        = .ci/cargo-static
STATIC_BUILD  = $(STATIC) $(HOST)
BUILT         = $(or $(CARGO_TARGET_DIR),target)
RELEASE       = $(BUILT)/$(HOST)/release
# Plugins start once per pod, which musl does in half the time; glibc if musl is not available (decision 0014).
PLUGIN_TARGET = $(shell .ci/plugin-target)

.DEFAULT_GOAL := help
.PHONY: help setup build plugins programs image image-test release demo cluster cluster-down e2e faults conformance upgrade bench-cluster check test bench scale soak oldest machine fuzz lint budgets fmt

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install missing packages (packages.txt), as root; otherwise list them
	@.ci/setup

build: plugins programs ## Build the release binaries, static, into .build/bin

# Separately, because cargo would unite features of shared crates with those of the agent.
plugins: setup
	$(STATIC) $(PLUGIN_TARGET) $(addprefix --package ,$(PLUGINS))
	@install -D --target-directory=$(BIN) $(addprefix $(BUILT)/$(PLUGIN_TARGET)/release/,$(PLUGINS))
	@.ci/check-static --max-bytes $(PLUGIN_BYTES) $(addprefix $(BIN)/,$(PLUGINS))

programs: setup
	$(STATIC_BUILD) $(addprefix --bin ,$(PROGRAMS))
	@install -D --target-directory=$(BIN) $(addprefix $(RELEASE)/,$(PROGRAMS))
	@.ci/check-static $(addprefix $(BIN)/,$(PROGRAMS))

image: setup ## Write the image to .build/image, reproducibly, with SBOM and checksums; ARCH=amd64, arm64 or all
	@image/build $(ARCH)

image-test: setup ## Check the image's assembly, and run the arm64 plugin under qemu-user
	@image/test

release: setup ## Write images, chart, SBOMs, checksums and provenance to .build/release, and tag the version (docs/upgrade.md#releases)
	@ARCHES="$(ARCHES)" .ci/release

demo: build ## Show pods and requested VNICs on an emulated VCN; KEEP=1 leaves it running until Ctrl-C
	@$(BIN)/oke-sandbox demo --bin-dir $(BIN) $(if $(KEEP),--keep)

cluster: build image ## Start Kubernetes on an emulated VCN: kubelets with containerd and CRI-O (docs/testing-cluster.md)
	@tests/cluster/up

cluster-down: ## Stop the cluster of `make cluster`
	@tests/cluster/down

e2e: build image ## Test the image and the manifests on such a cluster
	@CLUSTER=$(CURDIR)/.build/e2e-cluster tests/cluster/e2e

faults: build image ## Inject the faults of tests/cluster/fault-list into such a cluster; each must be named with its next step (FAULTS= for some)
	@CLUSTER=$(CURDIR)/.build/faults-cluster tests/cluster/faults $(FAULTS)

conformance: build image ## Run Kubernetes's own specs of [sig-network] [Conformance], and critest's of networking, on such a cluster
	@CLUSTER=$(CURDIR)/.build/conformance-cluster tests/cluster/e2e nodes_turn_ready_by_kubectl_apply \
	    a_missing_native_pod_network_is_reported runtime_network_specs_pass \
	    kubernetes_network_specs_pass

upgrade: build image ## Upgrade and downgrade such a cluster between UPGRADE_FROM's build (the last release's) and this one, while pods start and stop
	@CLUSTER=$(CURDIR)/.build/upgrade-cluster EARLIER=$$(tests/cluster/earlier $(UPGRADE_FROM)) tests/cluster/e2e \
	    nodes_turn_ready_by_kubectl_apply a_missing_native_pod_network_is_reported a_pod_comes_and_goes pods_reach_pods_on_both_nodes \
	    no_pod_fails_through_an_upgrade_and_a_downgrade

bench-cluster: build image ## Compare pod start on real kubelets with ptp and host-local
	@CLUSTER=$(CURDIR)/.build/bench-cluster tests/cluster/bench

check: setup ## Run unit tests and tests on this kernel, in minutes; needs no API server, guest, image or cluster
	@.ci/test check

test: setup ## Run all tests, tier by tier
	@.ci/test

bench: setup build ## Compare the pod path with the reference plugins
	$(STATIC_BUILD) --package yardsticks
	@install -D --target-directory=$(BIN) $(addprefix $(RELEASE)/,$(YARDSTICKS))
	$(STATIC) $(PLUGIN_TARGET) --package yardsticks
	@install -D --target-directory=$(BIN)/as-plugin $(BUILT)/$(PLUGIN_TARGET)/release/bare-floor
	$(BENCH)

# A minimal OCI, and a real API server with 10,000 nodes, first with a profile for them, then with agents (SCALE=n for fewer).
scale: setup ## Check the controller with 20,000 VnicAttachments, and with 10,000 agents: memory, watches, sweep, writes at rest
	$(STATIC_BUILD) --bin oke-node-controller
	CONTROLLER=$(abspath $(RELEASE))/oke-node-controller cargo test --package oke-node-controller --test cluster -- \
	    --ignored --nocapture --test-threads=1 scale
	cargo test --package oke-node-controller --lib -- --ignored --nocapture ten_thousand_agents

# SOAK=1: tests that sample their cases (such as failing system calls) run all of them.
soak: setup ## Run all tests SOAK_ROUNDS times (10), then oldest, e2e, upgrade, conformance, machine and fuzz, stopping at the first failure
	@for round in $$(seq $(SOAK_ROUNDS)); do \
	    echo "==== round $$round of $(SOAK_ROUNDS)"; \
	    SOAK=1 .ci/test || exit 1; \
	done
	@$(MAKE) --no-print-directory oldest
	@$(MAKE) --no-print-directory e2e
	@PROXY_MODE=nftables $(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory upgrade
	@$(MAKE) --no-print-directory conformance
	@$(MAKE) --no-print-directory machine
	@$(MAKE) --no-print-directory fuzz

# One kernel with nf_tables, IPVS and VLANs, for tests that need all three.
machine: setup ## Run the tests of return paths, of a VNIC's NIC, of kernel settings, of a root disk that grows, and of a node without IPv6, on a Debian kernel under qemu
	cargo build --package oke-node-agent --package installer --package vcn-native --package sandbox --bins
	CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER=$(CURDIR)/tests/qemu/run \
	    cargo test --package tests --no-fail-fast --test node -- --include-ignored return_paths::
	CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER=$(CURDIR)/tests/qemu/run \
	    cargo test --package vnic-attach --test attach -- --ignored virtio_nic
	CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER=$(CURDIR)/tests/qemu/run \
	    cargo test --package oke-node-agent --test agent -- --ignored --test-threads=1 kernel_settings::
	QEMU_MEMORY=5G tests/qemu/run tests/qemu/root-disk $${CARGO_TARGET_DIR:-target}/debug/oke-node-agent
	QEMU_APPEND=ipv6.disable=1 CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUNNER=$(CURDIR)/tests/qemu/run \
	    cargo test --package oke-node-agent --test agent -- --ignored on_a_kernel_without_ipv6

# Rights, admission policies, custom resources, manifests and chart.
oldest: setup ## Run the tests that need an API server with the oldest Kubernetes that we support
	cargo build --workspace --bins
	@tests/libcni/build >/dev/null && tests/tools/build >/dev/null
	KUBEBUILDER_ASSETS=$$(tests/kube/oldest/build) cargo test --workspace --no-fail-fast --test cluster --test resources

fuzz: setup ## Feed INPUTS (10^7) inputs to each parser of untrusted bytes; TARGETS="pools environment" for some
	@INPUTS=$(INPUTS) tests/fuzz/run $(TARGETS)

lint: setup ## Check format, clippy, scripts, house rules, and licenses and sources of dependencies
	@.ci/deny
	cargo fmt --all --check
	@for script in $(filter-out .ci/releases,$(wildcard .ci/*)) image/build image/kubectl $(addprefix tests/cluster/,bench build cases conform control-plane critest down e2e earlier fault-list faults init install lib node up) tests/runner tests/fuzz/run tests/kube/servers/build tests/kube/oldest/build tests/kube/multus/build tests/libcni/build tests/tools/build sandbox/tests/oci_contract/go/build tests/uml/run tests/uml/init tests/qemu/run tests/qemu/init; do bash -n $$script || exit 1; done
	@# Not isolated, because it runs cargo, which may need the network.
	OKE_TEST_NO_ISOLATION=1 cargo run --quiet --package lint --bin house-lint
	cargo clippy --workspace --all-targets -- --deny warnings

budgets: setup ## Measure the packages again, and set their budgets; FOLDER=crates/vcn for one
	OKE_TEST_NO_ISOLATION=1 cargo run --quiet --package lint --bin house-lint -- --set-budgets $(FOLDER)

fmt: ## Format the Rust code
	cargo fmt --all
