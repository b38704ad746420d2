# Two commands to know: `make demo` runs the main job, `make test` runs the tests. Each does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install system models demo test test-long lint bench clean

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
	$(BIN)/python -m pytest -n 2 -m "not long" $(ARGS)

test-long: $(READY) system models
	$(BIN)/python -m pytest --timeout 3600 -m "long" $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) demo-out convert-out build *.egg-info
