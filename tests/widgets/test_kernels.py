"""Views where code really runs: scripts, terminals, and kernels without a browser."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kernels import path_for

import batchkit as bk

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("nbconvert")
jupyter_client = pytest.importorskip("jupyter_client")

pytestmark = [pytest.mark.notebook, pytest.mark.slow]

ROOT = Path(bk.__file__).parents[1]

LABEL = """
import time
import pandas as pd, batchkit as bk

def answer(text):
    time.sleep(0.1)
    return "a"

df = pd.DataFrame({"text": [f"row {number}" for number in range(12)]})
route = bk.FunctionProvider(answer, name="calm", max_concurrency=3)
out = df.llm.classify("text", ["a", "b"], route=route)
"""
SUMMARY = "label: 12 of 12 rows answered in"


def env_for(folder, **variables):
    own = {name: str(folder / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")}
    return {**os.environ, **own, "PYTHONPATH": str(ROOT), "BATCHKIT_JOURNAL": "off", **variables}


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=env_for(folder), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def notebook_of(folder, *cells):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, folder / "book.ipynb")
    return folder / "book.ipynb"


def by_script(folder):
    (folder / "script.py").write_text(LABEL, "utf-8")
    return run(folder, "script.py")


def by_ipython(folder):
    return run(folder, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", LABEL)


def by_jupyter_execute(folder):
    run(folder, "-c", "from nbclient.cli import main; main()", "--inplace", str(notebook_of(folder, LABEL)))
    outputs = nbformat.read(folder / "book.ipynb", 4).cells[0].outputs
    assert [sorted(output.get("data", output)) for output in outputs] == [["text/html", "text/plain"]]
    return outputs[0]["data"]["text/plain"]


def by_nbconvert(folder):
    run(folder, "-m", "nbconvert", "--execute", "--to", "html", str(notebook_of(folder, LABEL)))
    page = (folder / "book.html").read_text("utf-8")
    return re.sub(r"<[^>]*>", "", re.sub(r"(?s)<(script|style).*?</\1>", "", page))


@pytest.mark.parametrize("how", [by_script, by_ipython, by_jupyter_execute, by_nbconvert])
def test_the_summary_stands_once(tmp_path, how):
    """Wherever code runs, the summary is there once and no widget's repr is."""
    text = how(tmp_path)
    assert text.count(SUMMARY) == 1
    assert not re.search(r"VBox|HTML\(|children=", text)


@pytest.mark.parametrize("progress", ["widget", "html", "text"])
def test_a_view_that_was_asked_for(tmp_path, progress):
    """Each view that may be asked for from outside leaves its summary, once in each of ten runs and two jobs."""
    ten = "for _ in range(10): df.head(3).llm.classify('text', ['a', 'b'], route=route, dedupe=False)"
    two = (
        "jobs = [df.llm.background.classify('text', ['a', 'b'], route=route) for _ in range(2)]\n"
        "print([len(job.result()) for job in jobs])"
    )
    path = notebook_of(tmp_path, LABEL, ten, two)
    code = "from nbclient.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--inplace", str(path)],
        cwd=tmp_path, env=env_for(tmp_path, BATCHKIT_PROGRESS=progress), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = [
        [output["data"] for output in cell.outputs if output.output_type == "display_data"]
        for cell in nbformat.read(path, 4).cells
    ]
    assert [len(data) for data in shown] == [1, 10, 2]
    for data in [data for cell in shown for data in cell]:
        assert sorted(data) == ["text/html", "text/plain"][progress == "text" :]
        assert "rows answered in" in data["text/plain"]


# ---- Interrupt -------------------------------------------------------------------------------------

PROBE = """
import asyncio, gc, json, os, threading
from batchkit._engine import bridge
async def count_tasks(): return len(asyncio.all_tasks()) - 1
tasks = asyncio.run_coroutine_threadsafe(count_tasks(), bridge.loop()).result(5)
sockets = sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in os.listdir("/proc/self/fd")
              if os.path.exists(f"/proc/self/fd/{fd}"))
print(json.dumps([threading.active_count(), tasks, sockets]))
"""


class Kernel:
    """A kernel and its own client."""

    def __init__(self, folder, version):
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env=env_for(folder, PYTHONPATH=path_for(version)))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code):
        """Run a cell to its end; returns its reply and what it printed."""
        printed = []
        reply = self.client.execute_interactive(
            code, timeout=60, output_hook=lambda message: printed.append(message["content"].get("text", ""))
        )
        return reply["content"], "".join(printed)

    def interrupt(self, code, *waits):
        """Run a cell and interrupt it after each wait in turn; returns its reply, None where the kernel gives none.

        One that is hit in its own code, before or after the cell's, goes on but forgets to reply.
        """
        sent = self.client.execute(code)
        while True:  # it runs once the kernel echoes it
            message = self.client.get_iopub_msg(timeout=30)
            if message["msg_type"] == "execute_input" and message["parent_header"]["msg_id"] == sent:
                break
        for wait in waits:
            threading.Event().wait(wait)
            self.manager.interrupt_kernel()
        with contextlib.suppress(queue.Empty):
            while True:
                reply = self.client.get_shell_msg(timeout=10)
                if reply["parent_header"]["msg_id"] == sent:
                    return reply["content"]
        return None

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path, request):
    running = Kernel(tmp_path, request.param)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("kernel", "times"), [(None, 30), ("7.3.0", 5), ("6.31.0", 5)], ids=["newest", "7.3", "6"], indirect=["kernel"]
)
def test_interrupts_at_any_instant(kernel, times):
    """At random instants, some twice, Interrupt frees the cell and leaves no thread, task or socket behind."""
    with bk.playground(answer=lambda text, labels: labels[0], slow={"latency": 0.1}) as play:
        setup = f"""
import pandas as pd, batchkit as bk
df = pd.DataFrame({{"text": [f"row {{number}}" for number in range(2000)]}})
route = bk.OpenAICompatible("m", base_url={play.slow.base_url!r}, api_key="not-a-real-key", max_concurrency=4)
df.head(40).llm.classify("text", ["a", "b"], route=route, journal=False);
"""
        cell = 'out = df.llm.classify("text", ["a", "b"], route=route, journal=False)'
        assert kernel.run(setup)[0]["status"] == "ok"
        kernel.run(PROBE)
        baseline = json.loads(kernel.run(PROBE)[1])
        rng = random.Random(5)
        lost = 0
        for number in range(times):
            waits = [rng.uniform(0, 0.8)] + [rng.uniform(0, 0.4)] * (number % 3 == 0)
            reply = kernel.interrupt(cell, *waits)
            if reply is None:
                lost += 1
                assert kernel.run("print(bk.last_run().snapshot.finished)")[1] != "done\n"
            else:
                assert (reply["status"], "Interrupt" in reply["ename"]) == ("error", True)
            state = json.loads(kernel.run(PROBE)[1])
            assert all(now <= before for now, before in zip(state, baseline, strict=True)), (number, waits, state)
            before = len(play.slow.requests) + play.slow.in_flight
            assert kernel.run("1")[0]["status"] == "ok"
            assert len(play.slow.requests) + play.slow.in_flight == before
        assert lost <= times // 10
        _, printed = kernel.run(cell.replace("df.", "df.head(9).") + '\nprint(out["label"].notna().sum())')
        assert printed.split() == ["9"]
