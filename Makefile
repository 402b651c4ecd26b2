# Every target is one script in ci/ or bench/; CI calls the same scripts.
# `make help` lists them.

ROOT := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
# Where the caller stands (also under `make -C`): APP is imported from there.
export M0_CALLER_DIR := $(or $(PWD),$(CURDIR))
export APP ARGS SEED N

.DEFAULT_GOAL := help
.PHONY: help serve build test sim fuzz lint bench matrix cost cross clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(ROOT)/Makefile | column -t -s '|'

serve: ## build and serve the demo application, or APP=module:attr with ARGS="extra flags"
	@$(ROOT)/ci/serve.sh

build: ## build the wheel for python3 into .build/dist
	@$(ROOT)/ci/build.sh

test: ## Rust tests, simulated worlds, models under loom and shuttle, a short fuzzing, then pytest under each interpreter present
	@$(ROOT)/ci/test.sh

sim: ## simulated worlds: SEED=... replays one with its trace, N=1000 runs many; ARGS="--model pump"
	@$(ROOT)/ci/sim.sh $(ARGS)

fuzz: ## each fuzz target for ten minutes; ARGS="--seconds 30 connection", "--replay FILE TARGET"
	@$(ROOT)/ci/fuzz.sh $(ARGS)

lint: ## rustfmt, clippy, ruff, mypy, stubtest and the style check
	@$(ROOT)/ci/lint.sh

bench: ## every scenario against uvicorn, granian and fastpysgi; ARGS="--quick" to try it
	@$(ROOT)/bench/run.sh --scenario all $(ARGS)

matrix: ## both models on this machine's backends and on simulated ones, against what is expected of each platform
	@$(ROOT)/ci/matrix/run.sh $(ARGS)

cost: ## instructions a request, counted by callgrind
	@$(ROOT)/bench/cost.sh $(ARGS)

cross: ## check for macOS, FreeBSD and aarch64 Linux, and run the tests of the last under qemu
	@$(ROOT)/ci/cross.sh

clean: ## remove everything that the other targets made
	@$(ROOT)/ci/clean.sh
