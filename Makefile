# Two commands: `make survey` and `make test` do all set-up on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HF_HUB_DISABLE_TELEMETRY := 1
# Tests start many processes; without compiled files each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: survey test lint types fast slow bench docs-numbers docs-coverage docs-outputs docs-compare docs-notebooks \
  docs-site lock sbom audit clean

survey: $(VENV)/.users            ## measure the default model
	$(BIN)/armillary survey

test: lint types fast             ## everything that must be green

lint: $(VENV)/.developers
	$(BIN)/ruff check src tests bench supply docs/*.py examples
	$(BIN)/ruff format --check src tests bench supply docs/*.py examples

types: $(VENV)/.developers
	$(BIN)/mypy

fast: $(VENV)/.developers
	$(BIN)/pytest -m "not slow"

slow: $(VENV)/.slow $(VENV)/axe   ## real checkpoints, UMAP and PaCMAP, and the browser (Debian's chromium)
	$(BIN)/pytest -m slow -n 0

bench: $(VENV)/.developers
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/wrap.py
	$(BIN)/python bench/heads.py
	$(BIN)/python bench/peers.py

docs-numbers: $(VENV)/.users      ## measure four models anew and write every verdict in the docs; CHANGED=1: changed rules only
	$(BIN)/armillary models get smollm2
	$(BIN)/armillary models get minilm
	$(BIN)/python docs/verdicts.py $(if $(CHANGED),--changed)

docs-coverage: $(VENV)/.users     ## write where every statement of the sources is answered
	$(BIN)/python docs/coverage.py

docs-outputs: $(VENV)/.users      ## run the examples that pages quote and write what they print
	$(BIN)/python docs/outputs.py

docs-compare: $(VENV)/.developers  ## fine-tune, quantise, compare: write docs/compare.md
	$(BIN)/python docs/compare.py

docs-notebooks: $(VENV)/.developers  ## run the notebooks and store what they print
	$(BIN)/python docs/notebooks.py

docs-site: $(VENV)/.docs          ## the pages as a site that opens from disk: site/index.html
	$(BIN)/python docs/site.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# constraints.txt pins what was tested; among it a torch whose plain wheel is the CPU build.
$(VENV)/.users: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[gguf]'
	touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[docs,paper]'
	touch $@

# With LOCKED=1, a file whose SHA-256 is not in requirements.lock is refused; hatchling alone comes by its version.
$(VENV)/.developers: pyproject.toml constraints.txt requirements.lock | $(BIN)/python
ifdef LOCKED
	$(BIN)/pip install --disable-pip-version-check -q --require-hashes --no-deps -r requirements.lock
	$(BIN)/pip install --disable-pip-version-check -q --no-deps -e .
else
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
endif
	touch $@ $(VENV)/.users

$(VENV)/.slow: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[slow]'
	touch $@ $(VENV)/.developers $(VENV)/.users

# The accessibility checker that the browser tests load; it is no part of the package.
$(VENV)/axe: | $(BIN)/python
	mkdir -p $@ && cd $@ && npm pack --silent axe-core@4.14.0 && tar xzf axe-core-4.14.0.tgz

lock: $(VENV)/.developers         ## pin every package of the tests with its SHA-256
	$(BIN)/python supply/lock.py

sbom: $(VENV)/.developers         ## the bill of materials of a release (CycloneDX)
	$(BIN)/python supply/sbom.py

audit: $(VENV)/.developers        ## known vulnerabilities of the pinned packages (asks pypi.org)
	$(BIN)/pip install --disable-pip-version-check -q pip-audit
	$(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip --strict

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis survey site
