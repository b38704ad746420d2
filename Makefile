# Two commands to know: `make demo` runs the main job, `make test` runs the tests. Each does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install system models demo fuzz test test-long test-compilers test-compilers-long lint bench stack clean

install: $(READY)

$(READY): pyproject.toml constraints.txt scripts/make-venv
	scripts/make-venv "$(PYTHON)" "$(VENV)"
	touch $@

system:
	scripts/system-packages

models: $(READY)
	scripts/trained-models $(BIN)/python $(VENV)/models

demo: $(READY)
	$(BIN)/python examples/demo.py demo-out

test: $(READY) system models
	$(BIN)/python -m pytest -n 2 -m "not long and not compilers" $(ARGS)

test-long: $(READY) system models
	$(BIN)/python -m pytest --timeout 3600 -m "long and not compilers" $(ARGS)

# Real compilers from PyPI, each in an environment of its own below .toolchains. Sophgo's needs Python 3.10: without it
# its tests are skipped with that reason.
test-compilers: export CONVERT_TOOLCHAINS = $(CURDIR)/.toolchains
test-compilers: $(READY) models
	$(BIN)/python -m convert toolchain install openvino --accept-license
	$(BIN)/python -m convert toolchain install sophgo --accept-license || true
	$(BIN)/python -m pytest -n 2 -m "compilers and not long" tests/compilers $(ARGS)

# The rest of them: every trained model on both, every operator on tpu-mlir. Takes hours.
test-compilers-long: export CONVERT_TOOLCHAINS = $(CURDIR)/.toolchains
test-compilers-long: test-compilers
	$(BIN)/python -m pytest --timeout 3600 -m "compilers and long" tests/compilers $(ARGS)

# Coverage-guided, with atheris: `make fuzz TARGET=graphs SECONDS=600`. See docs/how-to/fuzz.md.
fuzz: $(READY)
	$(BIN)/python -m pip install --quiet -e ".[fuzz]"
	$(BIN)/python tests/fuzz/run_fuzz.py $(or $(TARGET),all) --seconds $(or $(SECONDS),600)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/audit
	$(BIN)/python -m pip check

# Parts alone: make bench ONLY="peers big". The pages go to bench-out and docs/reference.
bench: $(READY)
	scripts/peer-venvs "$(PYTHON)" .peers
	$(BIN)/python -m benchmarks $(ONLY) --docs docs/reference

stack: $(READY) system
	$(BIN)/python scripts/stack.py $(STACK)

clean:
	rm -rf $(VENV) demo-out convert-out build *.egg-info
