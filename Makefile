# The doors: a demo to look at, and the checks in three sizes. Behind them everything is cargo.
.DEFAULT_GOAL := help
.PHONY: help demo image nodes upgrade versions check test test-all

# What the clusters of the demo are: fake (in memory) or real (kube-apiserver and etcd).
KUBE ?= fake
# With 1, a virtual machine boots in the demo and becomes a node.
NODE ?=
# The commit that make upgrade upgrades from, and goes back to.
FROM ?= HEAD^
# Further arguments of the demo (--exit), of nodes (its cases, --record), and of versions.
ARGS ?=
CARGO_TARGET_DIR ?= target

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'make demo KUBE=real      on a real Kubernetes, which is built once by Go, for minutes'
	@echo 'make demo NODE=1         with a virtual machine that becomes a node, on a real Kubernetes'
	@echo 'make demo ARGS=--exit    ends by itself, with status 0 if all went well'

demo: ## Serve two tenants on this machine, and show what happened
	@.ci/needs $(if $(NODE),nodes,demo)
	@cargo build --locked --workspace --profile demo --bin osm --bin demo
	@$(CARGO_TARGET_DIR)/demo/demo --kube $(KUBE) $(if $(NODE),--node) $(ARGS)

nodes: ## Boot virtual machines from each image and with each fault, and see that they join
	@.ci/needs nodes
	@cargo build --locked --workspace --profile demo --bin osm --bin nodes
	@$(CARGO_TARGET_DIR)/demo/nodes $(ARGS)

image: ## Build the image for this machine's architecture, as an OCI archive
	@.ci/needs image
	@manifests/image/here

upgrade: ## Have the build of another commit (FROM=) serve before, beside and after this one
	@.ci/needs test
	@OSM_OTHER="$$(.ci/other-build $(FROM))" && KUBEBUILDER_ASSETS="$$(.ci/go-programs kubernetes)" \
	  && export OSM_OTHER KUBEBUILDER_ASSETS && cargo test --locked --test install upgrade

versions: ## Test on each supported minor of Kubernetes; ARGS=--record notes what passed
	@.ci/versions $(ARGS)

check: ## Check formatting, lints and the documentation of the code
	@.ci/check

test: ## Run the most telling tests of each class, also on a real Kubernetes
	@.ci/test

test-all: ## Run all other tests: every sweep, 2,000 histories, machines that boot, load
	@.ci/test-all
