"""What importing the package may do, and which of its modules may import what."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
LINT_IMPORTS = shutil.which("lint-imports", path=str(Path(sys.executable).parent))

HEAVY = [
    "aiohttp", "matplotlib", "wordllama", "nest_asyncio", "tqdm", "sqlite3", "ipywidgets", "IPython",
    "genai_prices", "pydantic", "httpx2",
]  # fmt: skip

# What `import batchkit` does beyond what `import pandas` had done by itself.
PROBE = """
import json, logging, sys, threading, warnings
import pandas

before = set(sys.modules)
filters, handlers = list(warnings.filters), list(logging.root.handlers)
sockets = []
sys.addaudithook(lambda event, args: sockets.append(event) if event.startswith("socket.") else None)
import batchkit

print(json.dumps({
    "imported": sorted(set(sys.modules) - before),
    "sockets": sockets,
    "threads": threading.active_count(),
    "filters kept": warnings.filters == filters,
    "handlers kept": logging.root.handlers == handlers,
}))
"""


@pytest.fixture(scope="module")
def import_effects() -> dict[str, Any]:
    command = [sys.executable, "-W", "error", "-c", PROBE]
    probe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert probe.returncode == 0, probe.stderr
    effects: dict[str, Any] = json.loads(probe.stdout)
    return effects


@pytest.mark.parametrize("module", HEAVY)
def test_heavy_modules_wait_for_their_first_use(module: str, import_effects: dict[str, Any]) -> None:
    """Importing the package does not import what only some of its users need."""
    assert "batchkit.errors" in import_effects["imported"]
    assert module not in import_effects["imported"]


def test_importing_opens_no_socket(import_effects: dict[str, Any]) -> None:
    """Importing the package touches no network."""
    assert import_effects["sockets"] == []


def test_importing_leaves_the_process_as_it_was(import_effects: dict[str, Any]) -> None:
    """Importing the package starts no thread and sets up neither warnings nor logging."""
    assert import_effects["threads"] == 1
    assert import_effects["filters kept"]
    assert import_effects["handlers kept"]


@pytest.mark.skipif(LINT_IMPORTS is None, reason="import-linter comes with the check extra")
def test_modules_import_downward_and_through_their_doors() -> None:
    """Every import contract in pyproject.toml is kept."""
    report = subprocess.run([str(LINT_IMPORTS), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.returncode == 0, report.stdout + report.stderr
