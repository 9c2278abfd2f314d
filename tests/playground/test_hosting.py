"""A playground opens and closes quietly, anywhere and any number of times."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import numpy as np
import pytest

from batchkit._engine.embedded import LabelModel, _load_once
from batchkit._playground import Playground, RunningServer, Server, playground
from batchkit.errors import ConfigError

ROOT = Path(__file__).parents[2]
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]})


def _ask(server: RunningServer) -> str:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", "/v1/chat/completions", BODY)
    reply = json.loads(connection.getresponse().read())
    connection.close()
    return reply["choices"][0]["message"]["content"]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "batchkit-playground"]


def test_two_servers_by_default():
    """Without servers there are a fast one and a careful one, of the two dialects."""
    with playground() as play:
        assert list(play) == ["fast", "careful"]
        assert len(play) == 2
        assert play["fast"] is play.fast
        assert (play.fast.server.dialect, play.careful.server.dialect) == ("openai", "anthropic")
        assert {"fast", "careful"} <= set(dir(play))


def test_it_opens_and_closes_many_times():
    """The same playground can be opened again and again, and leaves no thread behind."""
    play = playground(s=Server())
    for _ in range(20):
        with play:
            assert _ask(play.s) == "hello"
            assert len(play.s.requests) == 1
    assert _threads() == []


def test_start_and_close_are_the_same():
    """start() and close() do what `with` does, and twice does no harm."""
    play = playground(s=Server())
    assert "not running" in repr(play)
    assert play.start() is play
    url = play.s.url
    assert play.start().s.url == url
    assert "Playground running" in repr(play)
    assert _ask(play.s) == "hello"
    play.close()
    play.close()
    assert play.s.counts == {"answered": 1}
    assert _threads() == []


@pytest.mark.asyncio
async def test_it_works_beside_a_running_loop():
    """Both `with` and `async with` work where a loop is running."""
    with playground(s=Server()) as play:
        assert await asyncio.to_thread(_ask, play.s) == "hello"
    async with playground(s=Server()) as play:
        assert await asyncio.to_thread(_ask, play.s) == "hello"
    assert _threads() == []


@pytest.mark.asyncio
async def test_several_are_open_at_once():
    """Playgrounds do not know each other."""
    async with playground(s=Server()) as first, playground(s=Server()) as second:
        await asyncio.to_thread(_ask, second.s)
        assert (first.s.counts, second.s.counts) == ({}, {"answered": 1})


@pytest.mark.asyncio
@pytest.mark.parametrize("server", [Server(hangs=1), Server(latency=600)])
async def test_closing_hangs_up_on_requests_in_flight(server):
    """Clients that still wait when a playground closes are hung up on at once."""
    async with aiohttp.ClientSession() as session:
        async with playground(s=server) as play:
            url = play.s.base_url + "/chat/completions"
            asking = [asyncio.create_task(session.post(url, data=BODY)) for _ in range(3)]
            await _until(lambda: play.s.in_flight == 3)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(outcome, aiohttp.ClientConnectionError) for outcome in outcomes)
    assert play.s.counts == {"hang" if server.hangs else "abandoned": 3}
    assert _threads() == []


@pytest.mark.asyncio
async def test_cancelling_the_start_stops_it():
    """A task cancelled while it opens a playground leaves no thread behind."""

    async def open_one() -> None:
        async with playground(s=Server()):
            await asyncio.get_running_loop().create_future()

    opening = asyncio.create_task(open_one())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert _threads() == []


@pytest.mark.parametrize("closing", ["play.close()", ""])
def test_a_plain_script_ends_quietly(closing):
    """A script that closes its playground, or forgets to, ends without a word even with requests in flight."""
    script = f"""
import socket
from batchkit._playground import Server, playground
play = playground(s=Server(hangs=1)).start()
host, port = play.s.url.removeprefix("http://").split(":")
with socket.create_connection((host, int(port))) as client:
    body = {BODY!r}
    head = f"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {{len(body)}}\\r\\n\\r\\n"
    client.sendall((head + body).encode())
    while not play.s.in_flight:
        pass
    {closing}
print("done")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_importing_it_loads_no_http():
    """Neither aiohttp nor the embedded model is loaded before a playground starts."""
    script = "import sys, batchkit._playground; print({'aiohttp', 'wordllama'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"latency": 0.1}, r"latency=0\.1.*names a server"),
        ({"fast": "openai"}, "fast='openai'"),
        ({"fast": {"latencies": 0.1}}, "Did you mean 'latency'"),
        ({"fast": {"latency": -1}}, r"latency=-1"),
        ({"fast": Server}, "names a server"),
        ({"seed": "7"}, "seed='7'"),
        ({"answer": "billing"}, "answer='billing'"),
        ({"messages": Server()}, "'messages' cannot name a server"),
        ({"close": Server()}, "'close' cannot name a server"),
        ({"_x": Server()}, "'_x' cannot name a server"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings, says):
    """A keyword of a wrong kind is a ConfigError that says what to write."""
    with pytest.raises(ConfigError, match=says):
        playground(**settings)


def test_a_server_that_is_not_there():
    """Asking for a server that does not exist, or does not run yet, says so."""
    play = playground(fast=Server())
    with pytest.raises(ConfigError, match="Did you mean 'fast'"):
        play["fats"]
    with pytest.raises(AttributeError, match="'fats'"):
        _ = play.fats
    with pytest.raises(ConfigError, match="not running yet"):
        play["fast"]


def test_failing_to_start_is_told(monkeypatch):
    """A playground that cannot start raises why, and can be tried again."""
    play = playground(fast=Server())
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "batchkit._playground.site", None)
        with pytest.raises(ImportError, match="site"):
            play.start()
    assert _threads() == []
    with play:
        assert _ask(play.fast) == "hello"


def test_without_the_model_the_start_says_what_to_install(monkeypatch):
    """Where the embedded model is missing a playground without an answer function does not start."""
    play = playground(fast=Server())
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "wordllama", None)
        _load_once.cache_clear()
        with pytest.raises(ConfigError, match="batchkit-notebook\\[embedded\\]"):
            play.start()
    assert _threads() == []
    with playground(answer=lambda text, labels: "hi", fast=Server()) as play:
        assert _ask(play.fast) == "hi"


def test_the_messages_are_natural_and_balanced():
    """The bundled messages are about 120 different short texts with the columns that routing needs."""
    messages = playground().messages
    assert list(messages.columns) == ["text", "truth", "lang", "channel"]
    assert len(messages) == 120
    assert messages["text"].is_unique
    assert messages["text"].str.len().between(5, 150).all()
    assert messages["truth"].value_counts().to_dict() == dict.fromkeys(playground().labels, 20)
    assert messages["lang"].value_counts().to_dict() == {"en": 99, "zh": 21}
    assert set(messages["channel"]) == {"email", "chat", "phone"}


def test_the_messages_are_a_copy():
    """Changing the messages changes nobody else's."""
    play = Playground({"s": Server()})
    messages = play.messages
    messages["text"] = ""
    play.labels.clear()
    assert (play.messages["text"] != "").all()
    assert len(play.labels) == 6


def test_the_model_knows_the_messages():
    """The embedded model is right about most of the English messages by the published descriptions."""
    play = playground()
    english = play.messages.query("lang == 'en'")
    model = LabelModel(list(play.labels), list(play.labels.values()))
    found = np.array(list(play.labels))[model.probabilities(english["text"].tolist()).argmax(axis=1)]
    assert (found == english["truth"]).mean() > 0.8
