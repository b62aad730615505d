# What a developer does with Piton. `make` alone lists it.

.DEFAULT_GOAL := help
.PHONY: help setup setup-build run chat demo simulate demo-svg docs docs-test test test-agents lint fmt soak bench dist

# Where `make run` and `make chat` keep their sessions.
DATA := target/run

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing to build and test; quick when nothing is
	@scripts/setup

# What it takes to build and run: no test tool.
setup-build:
	@scripts/setup build

run: setup-build ## Build, then start the server with the built-in agent: no API key, no network
	cargo build -p piton-cli
	target/debug/piton --data $(DATA) serve

chat: setup-build ## Talk to the built-in agent; uses the server of `make run`, or starts one
	cargo build -p piton-cli
	target/debug/piton --data $(DATA) chat --agent echo

demo: setup-build ## Watch a worker being killed and going on
	cargo run -p piton-cli -- demo

simulate: setup ## Let the simulator look for trouble on fresh seeds for twenty seconds
	cargo run -p piton-testkit --bin piton-sim -- --fresh

demo-svg: setup ## Record the demo into docs/demo.svg
	cargo build -p piton-cli
	node scripts/record-demo.mjs

docs: setup-build ## Write the generated pages (commands, records, metrics); check links and commands
	cargo build -p piton-cli
	node scripts/docs.mjs
	node scripts/docs.mjs --check

docs-test: setup-build ## Run every command of the documentation and every example; needs jq and curl
	cargo build -p piton-cli
	node scripts/docs.mjs --run

test: setup ## Everything a change must pass: fmt, clippy, all tests, deny
	@scripts/check fmt clippy test deny

test-agents: setup ## Real agents from npm against a scripted model (optional)
	cargo build -p piton-cli
	node scripts/agents/run.mjs

lint: setup ## Only fmt and clippy
	@scripts/check fmt clippy

fmt: setup ## Format all code
	cargo fmt --all

soak: setup ## The long loops: 110,000 seeds, 3,000 kills of real processes, 1,000 cut readers, 60 planted bugs
	cargo run --release -p piton-testkit --bin piton-sim -- --seeds 100000
	cargo run --release -p piton-testkit --bin piton-sim -- --seeds 10000 --store files
	cargo test --release --target-dir target/planted --workspace --features piton-testkit/planted --test planted -- --nocapture
	cargo test --release -p piton-testkit --test it -- --ignored --nocapture
	cargo test --release -p piton-cli --test it -- --ignored --nocapture
	cargo test --release -p piton-graph --test it -- --ignored --nocapture

bench: setup ## Measure the log and the commands; prints tables with method and spread
	cargo bench -p piton-testkit --bench log
	cargo bench -p piton-cli --bench cli
	cargo bench -p piton-cli --bench server

dist: setup-build ## Build as for a release: thin LTO, symbols stripped
	cargo build --profile dist --locked --workspace --exclude piton-testkit
