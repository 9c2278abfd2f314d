"""Binder can build what its folder says, and that is enough for the first notebook."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

# Warnings of Jupyter's own are none of ours.
pytestmark = [pytest.mark.notebook, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).parent.parent
BINDER = ROOT / "binder"


def test_binder_pins_a_python_and_installs_this_checkout():
    """Binder's Python is pinned, and `postBuild` installs the checkout with the model that needs no network."""
    assert (BINDER / "runtime.txt").read_text("utf-8").strip() == "python-3.13"
    build = BINDER / "postBuild"
    assert os.access(build, os.X_OK)
    assert '".[embedded]"' in build.read_text("utf-8")
    subprocess.run(["bash", "-n", str(build)], check=True)


def test_binder_plans_an_image():
    """repo2docker finds the pinned Python, the requirements and `postBuild`, without Docker."""
    pytest.importorskip("repo2docker")
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    planned = subprocess.run(command, capture_output=True, text=True, check=False)
    said = planned.stdout + planned.stderr
    assert planned.returncode == 0, said
    assert "python=3.13" in said
    assert "binder/requirements.txt" in said
    assert "./binder/postBuild" in said


def where_lab_opens(lab, env):
    """Where JupyterLab sends somebody who comes without a path."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [lab, "--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
                    try:
                        connection.request("GET", "/")
                        return urlsplit(connection.getresponse().getheader("Location")).path
                    except ConnectionError:
                        time.sleep(0.2)
            raise AssertionError("JupyterLab did not start")
        finally:
            server.terminate()


def test_binder_runs_the_first_notebook(tmp_path):
    """What Binder installs, and nothing else, opens JupyterLab on the first notebook and runs it."""
    place = tmp_path / "binder"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JUPYTER_PATH")}
    inside = clean | {"PATH": f"{place / 'bin'}{os.pathsep}{clean['PATH']}", "VIRTUAL_ENV": str(place)}
    inside["JUPYTER_CONFIG_DIR"] = str(tmp_path / "config")
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(BINDER / "requirements.txt")]
    first = ROOT / "notebooks" / "01_first_labels.ipynb"
    run_it = [str(place / "bin" / "jupyter"), "execute", "--output", str(tmp_path / "executed"), str(first)]
    for command in (install, [str(BINDER / "postBuild")], run_it):
        done = subprocess.run(command, cwd=ROOT, env=inside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    opened = where_lab_opens(str(place / "bin" / "jupyter-lab"), inside)
    assert opened == "/lab/tree/notebooks/01_first_labels.ipynb"
    executed = json.loads((tmp_path / "executed.ipynb").read_text("utf-8"))
    outputs = [output for cell in executed["cells"] for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output["output_type"] == "error"]
