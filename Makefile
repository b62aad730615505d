# What a developer does with Piton. `make` alone lists it.

.DEFAULT_GOAL := help
.PHONY: help setup setup-build run chat demo simulate demo-svg docs docs-test test test-agents lint fmt soak bench bench-web web dist cross packages

# Where `make run` and `make chat` keep their sessions.
DATA := target/run
# The program, with its dependencies built as `make test` builds them: each is built once.
BUILD := cargo build -p piton-cli --features test-deps

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing to build and test; quick when nothing is
	@scripts/setup

# What it takes to build and run: no test tool.
setup-build:
	@scripts/setup build

run: setup-build web ## Build, then start the server and the web app with the built-in agent: no API key, no network
	$(BUILD)
	target/debug/piton --data $(DATA) serve

web: ## Build the web app, if Node.js 20 or newer is there
	@scripts/web build

chat: setup-build ## Talk to the built-in agent; uses the server of `make run`, or starts one
	$(BUILD)
	target/debug/piton --data $(DATA) chat --agent echo

demo: setup-build ## Watch a worker being killed and its session resumed
	$(BUILD)
	target/debug/piton demo

simulate: setup ## Let the simulator look for trouble on fresh seeds for twenty seconds
	cargo run -p piton-testkit --bin piton-sim -- --fresh

demo-svg: setup ## Record docs/demo.svg and docs/first-minute.svg from the built program; needs tmux and jq
	$(BUILD)
	node scripts/record-demo.mjs
	node scripts/record-chat.mjs

docs: setup-build ## Write the generated pages (commands, records, metrics); check links and commands
	$(BUILD)
	node scripts/docs.mjs
	node scripts/docs.mjs --check

docs-test: setup-build ## Run every command of the documentation and every example; needs jq and curl
	$(BUILD)
	node scripts/docs.mjs --run

test: setup ## Everything a change must pass: fmt, clippy, all tests, docs, the web packages, deny
	@scripts/check fmt clippy test docs web deny

test-agents: setup ## Real agents from npm against a scripted model (optional)
	$(BUILD)
	node scripts/agents/run.mjs

lint: setup ## Only fmt and clippy
	@scripts/check fmt clippy

fmt: setup ## Format all code
	cargo fmt --all

soak: setup ## The long loops: 110,000 seeds, 3,000 kills of real processes, 1,000 cut readers, 63 planted bugs
	cargo run --release -p piton-testkit --bin piton-sim -- --seeds 100000
	cargo run --release -p piton-testkit --bin piton-sim -- --seeds 10000 --store files
	cargo test --release --target-dir target/planted --workspace --features piton-testkit/planted --test planted -- --nocapture
	cargo test --release -p piton-testkit --test it -- --ignored --nocapture
	cargo test --release -p piton-cli --test it -- --ignored --nocapture
	node scripts/attacks.mjs 10 --release
	cargo build --profile dist -p piton-cli
	TESTED_PITON=$(CURDIR)/target/dist/piton cargo test --release -p piton-cli --test it -- server::
	cargo test --release -p piton-graph --test it -- --ignored --nocapture
	cargo build -p piton-cli
	@scripts/web soak

bench: setup ## Measure the log and the commands; prints tables with method and spread
	cargo bench -p piton-testkit --bench log
	cargo bench -p piton-cli --bench cli
	cargo bench -p piton-cli --bench server
	cargo bench -p piton-cli --bench terminal
	cargo bench -p piton-workspace --bench snapshot

bench-web: setup ## Measure the web app in a browser: time to interactive, arrival to paint, heap
	cargo build -p piton-cli
	@scripts/web bench

dist: setup-build web ## Build the static release binary, with its checksum, and try it in an empty chroot
	@scripts/dist

cross: setup-build web ## Build for aarch64 Linux and macOS through zig: compiled, never run here
	@scripts/dist cross

packages: setup-build web ## Make the npm and PyPI packages that carry the binary; run each from its file by npx and uvx
	@scripts/dist packages
