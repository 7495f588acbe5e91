# The two doors: a demo to look at, and every check that there is. Behind them everything is cargo.
.DEFAULT_GOAL := help
.PHONY: help demo test

# What the clusters of the demo are: fake (in memory) or real (kube-apiserver and etcd).
KUBE ?= fake
# Further arguments of the demo, such as --exit.
ARGS ?=
CARGO_TARGET_DIR ?= target

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'make demo KUBE=real      on a real Kubernetes, which is built once by Go, for minutes'
	@echo 'make demo ARGS=--exit    ends by itself, with status 0 if all went well'

demo: ## Serve two tenants on this machine, and show what happened
	@cargo build --locked --workspace --bin osm --bin demo
	@$(CARGO_TARGET_DIR)/debug/demo --kube $(KUBE) $(ARGS)

test: ## Run every check and every test, also on a real Kubernetes
	@.ci/test
