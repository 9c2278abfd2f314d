"""The bridge: one loop for every thread, an interrupt that gets through, and a process that ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batchkit._engine import bridge
from batchkit.errors import BatchkitError, ConfigError

ROOT = Path(__file__).parents[2]


async def where():
    return asyncio.get_running_loop(), threading.current_thread()


async def answer(value):
    return value


def nothing():
    pass


# ---- one loop ----------------------------------------------------------------------------------


def test_all_threads_share_one_loop_in_one_thread():
    """Whoever asks, work runs on the same loop, in a daemon thread that is not the asker's."""
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: bridge.wait(bridge.submit(where()), nothing), range(32)))
    ((loop, thread),) = found
    assert loop is bridge.loop()
    assert thread.daemon
    assert thread is not threading.main_thread()


def test_every_thread_gets_its_own_result():
    """Results of many threads at once are not mixed up."""
    with ThreadPoolExecutor(8) as pool:
        numbers = range(200)
        assert list(pool.map(lambda n: bridge.wait(bridge.submit(answer(n)), nothing), numbers)) == list(numbers)


def test_a_running_loop_of_the_callers_is_left_alone():
    """Waiting from inside a running loop works and changes neither the loop nor its class."""

    async def cell():
        loop = asyncio.get_running_loop()
        before = type(loop), type(loop)._run_once, dict(vars(loop)).keys()
        value = bridge.wait(bridge.submit(answer(7)), nothing)
        return value, before == (type(loop), type(loop)._run_once, dict(vars(loop)).keys())

    assert asyncio.run(cell()) == (7, True)


def test_the_engine_runs_on_uvloop_where_that_is_installed():
    """It then is faster, and its clock is the one by which waits are shown."""
    uvloop = pytest.importorskip("uvloop")
    assert isinstance(bridge.loop(), uvloop.Loop)

    async def now():
        await asyncio.sleep(0)
        return time.monotonic(), asyncio.get_running_loop().time(), time.monotonic()

    earlier, between, later = bridge.submit(now()).result()
    assert earlier <= between <= later


def test_a_uvloop_of_the_callers_makes_no_difference():
    """The caller's thread may run any loop."""
    uvloop = pytest.importorskip("uvloop")

    async def cell():
        return bridge.wait(bridge.submit(where()), nothing)

    loop, _ = uvloop.run(cell())
    assert loop is bridge.loop()


def test_a_start_from_inside_the_engine_is_refused():
    """Work started from the engine's own thread would wait for itself, and says how to do better."""

    async def inside():
        bridge.submit(answer(1))

    with pytest.raises(BatchkitError, match="plain def"):
        bridge.submit(inside()).result(30)


def test_a_call_reaches_the_loop():
    """A function is called in the engine's thread."""
    seen = concurrent.futures.Future()
    bridge.call(lambda name: seen.set_result((name, threading.current_thread().name)), "x")
    assert seen.result(30) == ("x", "batchkit-engine")


# ---- waiting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("x"), TimeoutError("its own")], ids=repr)
def test_an_error_is_raised_where_it_is_waited_for(error):
    """What work raises comes out of the waiting, a time-out of its own included."""

    async def fails():
        raise error

    with pytest.raises(type(error), match=str(error)):
        bridge.wait(bridge.submit(fails()), nothing)


def test_the_waiting_looks_up_now_and_then(monkeypatch):
    """While it waits the caller's function is called, and may end the waiting."""
    monkeypatch.setattr(bridge, "_TICK", 0.001)
    future = concurrent.futures.Future()
    assert bridge.wait(future, lambda: future.set_result("seen")) == "seen"


def test_a_look_that_raises_ends_the_waiting(monkeypatch):
    """What happens while looking, an interrupt above all, comes out."""
    monkeypatch.setattr(bridge, "_TICK", 0.001)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bridge.wait(concurrent.futures.Future(), interrupt)


# ---- the caller's own loop ---------------------------------------------------------------------


def test_no_loop_where_none_is_needed():
    """Without functions that must run there no loop is made or patched."""
    with bridge.home_loop(False) as home:
        assert home is None


def test_the_own_loop_runs_while_it_waits(monkeypatch):
    """Work on the caller's loop gets done while the caller waits, and the waiting looks up."""
    monkeypatch.setattr(bridge, "_TICK", 0.0)
    looks = []

    async def from_engine(home):
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answer("home"), home))

    with bridge.home_loop(True) as home:
        assert bridge.wait(bridge.submit(from_engine(home)), lambda: looks.append(1), home) == "home"
    assert looks
    assert home.is_closed()


def test_a_uvloop_cannot_be_nested():
    """A running loop that cannot be patched is refused before anything is sent, with two ways on."""
    uvloop = pytest.importorskip("uvloop")

    async def cell():
        with bridge.home_loop(True):
            pytest.fail("it was taken")

    with pytest.raises(ConfigError, match='loop="engine"'):
        uvloop.run(cell())


# ---- processes ---------------------------------------------------------------------------------

HEAD = """
import asyncio, os, re, signal, threading
import pandas as pd
import batchkit as bk
from batchkit.runs import run as runs

def say(*words):
    print(*words, flush=True)

frame = pd.DataFrame({"t": list("abcd")})

def label(fn, **options):
    route = bk.FunctionProvider(fn, name="f", **options)
    return frame.llm.classify("t", ["x", "y"], route=route, details="full", progress=False)

halting = threading.Event()
runs._GRACE = 30.0  # more than a busy machine needs for the second Ctrl-C
halt = runs.Run._halt
def noted(self, why, grace):
    halt(self, why, grace)
    say("halt", why, grace)
    halting.set()
runs.Run._halt = noted

wait = runs.bridge.wait
def noted_wait(*args):
    if halting.is_set():
        say("waiting on")
    return wait(*args)
runs.bridge.wait = noted_wait
"""


def script(body, *, interrupts=(), flags=()):
    """Run a script; at each line that is in ``interrupts`` it gets a SIGINT. Returns its lines."""
    interrupts = list(interrupts)
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", HEAD + textwrap.dedent(body)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if interrupts and lines[-1] == interrupts[0]:
                interrupts.pop(0)
                process.send_signal(signal.SIGINT)
        # Python's development mode tells of every callback that a busy machine kept waiting.
        stderr = "".join(line for line in process.stderr if not line.startswith("Executing "))
    assert (process.returncode, stderr) == (0, ""), (lines, stderr)
    assert not interrupts
    return lines


STATES = """
    except bk.Interrupted as error:
        say(re.search(r"[0-9]+ of [0-9]+ rows are answered", str(error))[0])
        say(*bk.last_run().rows["status"][1:])
    halting.clear()
    say(label(lambda prompt: "y")["label"].tolist())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a SIGINT cannot be sent to one process here")
def test_an_interrupt_keeps_what_arrives():
    """After one Ctrl-C what is in flight may still arrive, nothing new starts, and the next run works."""
    lines = script(
        """
        def fn(prompt):
            if prompt == "a":
                return "x"
            say("asked", prompt)
            halting.wait()
            return "x"
        try:
            label(fn, max_concurrency=1)
        """
        + STATES.replace("\n", "\n    "),
        interrupts=["asked b"],
    )
    assert lines == [
        "asked b",
        "halt interrupted 30.0",
        "waiting on",
        "2 of 4 rows are answered",
        "answered pending pending",
        "['y', 'y', 'y', 'y']",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a SIGINT cannot be sent to one process here")
@pytest.mark.parametrize("loop", ["engine", "caller"])
def test_a_second_interrupt_leaves_at_once(loop):
    """The second Ctrl-C waits for nothing, whichever loop the function runs on."""
    lines = script(
        f"""
        async def fn(prompt):
            say("asked", prompt)
            await asyncio.Event().wait()
        try:
            label(fn, max_concurrency=1, loop={loop!r})
        """
        + STATES.replace("\n", "\n    "),
        interrupts=["asked a", "waiting on"],
    )
    assert lines == [
        "asked a",
        "halt interrupted 30.0",
        "waiting on",
        "halt interrupted 0.0",
        "0 of 4 rows are answered",
        "pending pending pending",
        "['y', 'y', 'y', 'y']",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="a SIGINT cannot be sent to one process here")
def test_an_interrupt_inside_a_function_on_the_callers_loop():
    """A Ctrl-C that hits the user's function itself interrupts the run, and the engine lives on."""
    lines = script(
        """
        def fn(prompt):
            signal.raise_signal(signal.SIGINT)
        try:
            label(fn, max_concurrency=1, loop="caller")
        """
        + STATES.replace("\n", "\n    ")
    )
    assert lines == [
        "halt interrupted 30.0",
        "waiting on",
        "0 of 4 rows are answered",
        "pending pending pending",
        "['y', 'y', 'y', 'y']",
    ]


@pytest.mark.parametrize("flags", [(), ("-X", "dev", "-W", "error")], ids=["plain", "strict"])
@pytest.mark.parametrize("loop", ["engine", "caller"])
def test_a_script_ends_quietly(loop, flags):
    """A plain script on either loop ends without a word, even where warnings are errors."""
    body = f"""
        async def fn(prompt):
            await asyncio.sleep(0)
            return "x"
        say(label(fn, loop={loop!r})["label"].tolist())
        say(label(lambda prompt: "x", loop={loop!r})["label"].tolist())
    """
    assert script(textwrap.dedent(body), flags=flags) == ["['x', 'x', 'x', 'x']"] * 2


def test_a_function_may_use_a_loop_that_runs_already():
    """In a running loop, as in a notebook, a function that belongs to it runs there."""
    body = """
        async def cell():
            here = asyncio.get_running_loop()
            lock = asyncio.Lock()
            async def fn(prompt):
                async with lock:
                    return "x" if asyncio.get_running_loop() is here else "y"
            return label(fn, loop="caller")["label"].tolist()
        say(asyncio.run(cell()))
    """
    assert script(textwrap.dedent(body)) == ["['x', 'x', 'x', 'x']"]


def test_a_run_may_be_started_from_a_sync_function():
    """A sync function given to a provider may itself start a run."""
    body = """
        def fn(prompt):
            inner = bk.FunctionProvider(lambda prompt: "y")
            return pd.Series([str(prompt)]).llm.classify(["x", "y"], route=inner, progress=False).iloc[0]
        say(label(fn)["label"].tolist())
    """
    assert script(textwrap.dedent(body)) == ["['y', 'y', 'y', 'y']"]


def test_a_run_from_an_async_function_is_refused():
    """An async function that starts a run on the engine's loop gets an error that says what to do."""
    body = """
        async def fn(prompt):
            pd.Series(["t"]).llm.classify(["x", "y"], route=bk.FunctionProvider(lambda p: "y"), progress=False)
        out = label(fn)
        say(set(out["label_error"]), all("plain def" in message for message in out["label_message"]))
    """
    assert script(textwrap.dedent(body)) == ["{'function'} True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_starts_a_loop_of_its_own():
    """A child forked while the parent's run is in flight works, and so does the parent."""
    body = """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads is the point
        def fn(prompt):
            if prompt == "a":
                child = os.fork()
                if not child:
                    say(label(lambda prompt: "y")["label"].tolist())
                    os._exit(0)
                os.waitpid(child, 0)
            return "x"
        say(label(fn)["label"].tolist())
    """
    assert script(textwrap.dedent(body)) == ["['y', 'y', 'y', 'y']", "['x', 'x', 'x', 'x']"]


def test_exit_in_the_middle_of_a_run():
    """A process that ends while a run goes on in another thread ends."""
    body = """
        asked = threading.Event()
        async def fn(prompt):
            asked.set()
            await asyncio.Event().wait()
        def work():
            try:
                label(fn)
            except BaseException:
                pass  # its run ends with the process
        threading.Thread(target=work, daemon=True).start()
        asked.wait()
        say("end")
    """
    assert script(textwrap.dedent(body)) == ["end"]
