"""It works wherever it is called from: scripts, running loops, threads, again and again, without a warning."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk

ROOT = Path(__file__).parents[1]


def label(play, rows=6, **settings):
    df = pd.DataFrame({"text": [f"row {number}" for number in range(rows)]})
    route = bk.balance(play.fast.provider(**settings), play.careful.provider(**settings))
    return df.llm.classify("text", ["a", "b"], route=route, progress=False)["label"].tolist()


def always_a(text, labels):
    return labels[0]


@pytest.fixture(scope="module")
def play():
    with bk.playground(answer=always_a) as running:
        yield running


def run_script(code, *flags):
    """Run code in a fresh interpreter in which every warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.asyncio
async def test_inside_a_running_loop(play):
    """A sync call works inside a running loop, twice in a row, and leaves the loop as it was."""
    loop = asyncio.get_running_loop()
    before = type(loop), type(asyncio.get_event_loop_policy()), asyncio.Task
    assert label(play) == ["a"] * 6
    assert label(play) == ["a"] * 6
    assert (type(asyncio.get_running_loop()), type(asyncio.get_event_loop_policy()), asyncio.Task) == before


def test_inside_a_uvloop(play):
    """The same inside a uvloop loop."""
    uvloop = pytest.importorskip("uvloop")

    async def main():
        loop = type(asyncio.get_running_loop())
        return label(play), loop, type(asyncio.get_running_loop())

    labels, before, after = uvloop.run(main())
    assert labels == ["a"] * 6
    assert before is after is uvloop.Loop


def test_from_several_threads_at_once(play):
    """Eight threads at once each get their own rows' answers."""
    found = {}

    def work(number):
        found[number] = label(play, rows=number + 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: ["a"] * (number + 1) for number in range(8)}


def test_many_times_in_a_row(play):
    """Fifty runs in a row need no more threads than one, and keep their connections."""
    label(play)
    threads = threading.active_count()
    for _ in range(50):
        assert label(play, rows=3) == ["a"] * 3
    assert threading.active_count() == threads


def test_a_script_ends_quietly():
    """A script that labels over HTTP prints what it prints and nothing else, in development mode too."""
    code = """
import logging, pandas as pd, batchkit as bk
logging.getLogger("asyncio").setLevel(logging.ERROR)  # development mode warns of a slow machine
with bk.playground(answer=lambda text, labels: labels[0]) as play:
    route = bk.balance(play.fast.provider(), play.careful.provider())
    out = pd.DataFrame({"text": ["x", "y"]}).llm.classify("text", ["a", "b"], route=route, progress=False)
    print(out["label"].tolist())
"""
    done = run_script(code, "-X", "dev")
    assert (done.stdout, done.stderr, done.returncode) == ("['a', 'a']\n", "", 0)


def test_asyncio_run_and_uvloop_in_one_script():
    """Calls from asyncio.run, from no loop and from uvloop follow each other in one process."""
    pytest.importorskip("uvloop")
    code = """
import asyncio, pandas as pd, uvloop, batchkit as bk
def ask(play):
    df = pd.DataFrame({"text": ["x"]})
    return df.llm.classify("text", ["a", "b"], route=play.fast.provider(), progress=False)["label"].tolist()
async def inside(play):
    return ask(play)
with bk.playground(answer=lambda text, labels: labels[0]) as play:
    print(asyncio.run(inside(play)), ask(play), uvloop.run(inside(play)), asyncio.run(inside(play)))
"""
    done = run_script(code)
    assert (done.stdout, done.stderr) == ("['a'] ['a'] ['a'] ['a']\n", "")


def test_functions_on_the_callers_own_loop():
    """loop="caller" runs an async function on the loop of the calling thread, running or not."""
    code = """
import asyncio, pandas as pd, batchkit as bk
loops = []
async def answer(prompt):
    loops.append(asyncio.get_running_loop())
    await asyncio.sleep(0)
    return "a"
def ask():
    provider = bk.FunctionProvider(answer, loop="caller", name="f")
    df = pd.DataFrame({"text": ["x", "y"]})
    return df.llm.classify("text", ["a", "b"], route=provider, progress=False)["label"].tolist()
print(ask(), len(loops))
async def cell():
    found = ask()
    print(found, all(loop is asyncio.get_running_loop() for loop in loops[2:]))
asyncio.run(cell())
"""
    done = run_script(code)
    assert (done.stdout, done.stderr) == ("['a', 'a'] 2\n['a', 'a'] True\n", "")


def test_importing_is_light_and_registers_the_accessors():
    """import batchkit registers df.llm and series.llm, starts no thread and opens no connection."""
    code = """
import threading, pandas as pd, batchkit
print(pd.DataFrame.llm.__name__, pd.Series.llm.__name__, threading.active_count())
"""
    done = run_script(code)
    assert (done.stdout, done.stderr) == ("FrameLLM SeriesLLM 1\n", "")
