# Everything on a fresh machine with Python, make and git: make check, make test.
# DRAFTPROOF_SYSTEM=1 uses the Python that is there, with the torch that it has, and installs nothing.

SHELL := /bin/bash
PYTHON ?= python3
export OMP_NUM_THREADS ?= 1

ifdef DRAFTPROOF_SYSTEM
BIN := $(PYTHON)
READY :=
else
BIN := .venv/bin/python
READY := .venv/ready
endif
RUN := $(if $(DRAFTPROOF_SYSTEM),tools/on-system $(PYTHON),$(BIN))

.PHONY: check test lint types bench test-gpu bench-gpu faults clean

check: $(READY)
	$(BIN) -m draftproof.cli check $(ARGS)

test: $(READY)
	$(BIN) -m pytest -q -n 2 -m "not gpu" $(ARGS)

faults: $(READY)
	$(BIN) -m draftproof.cli faults run $(ARGS)

bench: $(READY)
	$(BIN) benchmarks/scenarios.py $(ARGS)

test-gpu: $(READY)
	$(BIN) -m pytest -q -m gpu $(ARGS)

bench-gpu: $(READY)
	$(BIN) benchmarks/decode_gpu.py $(ARGS)

lint: .venv/lint types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
