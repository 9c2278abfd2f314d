"""Guarantee 5: limits belong to (base URL, key, model), whoever asks there, and in whatever way."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import orjson
import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import bridge, limits, transport
from batchkit._engine.callers import HttpCaller
from batchkit._engine.transport import Channel, HttpAnswer

LABELS = ["0", "1", "2"]
NAMES = ("sync", "background", "aio")


def frame(name, rows):
    return pd.DataFrame({"text": [f"{name} {number} #{number % 3}" for number in range(rows)]})


def providers(base_url, each):
    """One provider for each way of asking, built apart; they differ in their names and in their limits."""
    return {name: bk.OpenAI("m", name=name, base_url=base_url, api_key="none", **each[name]) for name in NAMES}


def ask_at_once(base_url, each, rows, begun=lambda: None):
    """Ask in the background, in a thread and with ``await``, all at once; ``begun`` waits for the first of them."""
    route = providers(base_url, each)
    asked = {name: frame(name, rows[name]) for name in NAMES}
    terms = {"labels": LABELS, "progress": False, "dedupe": False}
    job = asked["background"].llm.background.classify("text", route=route["background"], **terms)
    begun()
    with ThreadPoolExecutor(1) as threads:
        sync = threads.submit(asked["sync"].llm.classify, "text", route=route["sync"], **terms)
        aio = asyncio.run(asked["aio"].llm.aio.classify("text", route=route["aio"], **terms))
        answers = {"sync": sync.result(), "background": job.result(), "aio": aio}
    for name in NAMES:
        assert answers[name]["label"].tolist() == [text.split("#")[1] for text in asked[name]["text"]]


def fullest(sent):
    """The largest amount in any half-open 60 s, of pairs of time and amount in order."""
    ends = [bisect_left(sent, (at + 60.0,)) for at, _ in sent]
    return max(sum(amount for _, amount in sent[first:end]) for first, end in enumerate(ends))


def most_at_once(stays):
    """The most that were there at once, of stays that begin and end; one may begin when another ends."""
    moves = sorted([(end, -1) for _, end in stays] + [(begin, 1) for begin, _ in stays])
    there = most = 0
    for _, move in moves:
        there += move
        most = max(most, there)
    return most


# ---- whole minutes, on a clock that jumps to the next timer ----------------------------------------


class Clock(selectors.DefaultSelector):
    """Where a loop would wait for a timer, the clock is put forward; for other threads it does wait."""

    now = 1.0

    def select(self, timeout=None):
        if not timeout:
            return super().select(timeout)
        found = super().select(0)
        self.now += 0.0 if found else timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self._clock = Clock()
        super().__init__(self._clock)

    def time(self):
        return self._clock.now


class Seen(NamedTuple):
    name: str
    came: float
    went: float
    tokens: float
    """All it may use: what was sent, four bytes a token, and the cap on the reply."""


class Vendor:
    """Stands where the wire begins: answers after two to six seconds of the engine's clock, and notes what it saw."""

    def __init__(self):
        self.seen = []
        self._absent, self._complete = len(NAMES), asyncio.Event()

    async def opened(self):
        """Let nobody send before all are there: from the first request on the limits of all of them hold."""
        self._absent -= 1
        if not self._absent:
            self._complete.set()
        await self._complete.wait()

    async def post(self, url, body, timeout):
        clock = asyncio.get_running_loop()
        asked, came = orjson.loads(body), clock.time()
        text = asked["messages"][-1]["content"]
        tokens = sum(len(message["content"].encode()) for message in asked["messages"]) / 4
        await asyncio.sleep(2.0 * (1 + len(self.seen) % 3))
        self.seen.append(Seen(text.split()[0], came, clock.time(), tokens + asked["max_completion_tokens"]))
        answer = orjson.dumps({"label": text.split("#")[1], "confidence": 1}).decode()
        message = {"role": "assistant", "content": answer}
        return HttpAnswer(200, {}, orjson.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}))


@pytest.fixture
def vendor(monkeypatch):
    """What three providers at once are served by, while the engine runs on a loop whose minutes take no time."""
    made, loop, open_caller = Vendor(), JumpingLoop(), HttpCaller.open

    async def opened(caller):
        await open_caller(caller)
        await made.opened()

    thread = threading.Thread(target=loop.run_forever)
    monkeypatch.setattr(bridge, "_loop", loop)
    monkeypatch.setattr(bridge, "_thread", thread)
    monkeypatch.setattr(transport, "_sessions", {})
    monkeypatch.setattr(limits, "_GATES", {})
    monkeypatch.setattr(HttpCaller, "open", opened)
    monkeypatch.setattr(Channel, "post", lambda _, *sent: made.post(*sent))
    thread.start()
    yield made
    asyncio.run_coroutine_threadsafe(transport._close_all(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("strict", NAMES)
@pytest.mark.parametrize(
    ("limit", "value", "amount"),
    [("rpm", 100, lambda seen: 1), ("tpm", 90_000, lambda seen: seen.tokens)],
    ids=["requests", "tokens"],
)
def test_every_minute_keeps_to_the_strictest_limit(vendor, limit, value, amount, strict):
    """While three providers of one budget are asked at once, every half-open 60 s keep to the strictest limit."""
    seen = seen_of_all(vendor, strict, limit, value)
    assert seen[-1].came > 61
    assert 0.95 * value < fullest([(one.came, amount(one)) for one in seen]) <= value * (1 + 1e-9)


@pytest.mark.parametrize("strict", NAMES)
def test_in_flight_keeps_to_the_strictest_limit(vendor, strict):
    """While three providers of one budget are asked at once, as many are in flight as the strictest allows."""
    seen = seen_of_all(vendor, strict, "max_concurrency", 3)
    assert most_at_once([(one.came, one.went) for one in seen]) == 3


def seen_of_all(vendor, strict, limit, value):
    """What was sent until the first of the three was done, in order of arrival; by then the others had their share."""
    wide = {name: {"max_concurrency": 50, "rpm": 10_000, "tpm": 1e7} for name in NAMES}
    wide[strict][limit] = value
    ask_at_once("http://vendor.invalid/v1", wide, dict.fromkeys(NAMES, 60))
    end = min(max(one.went for one in vendor.seen if one.name == name) for name in NAMES)
    seen = sorted((one for one in vendor.seen if one.came < end), key=lambda one: one.came)
    counts = Counter(one.name for one in seen)
    assert min(counts[name] for name in NAMES) > 40, "none was kept waiting for another's rows"
    return seen


# ---- over HTTP -----------------------------------------------------------------------------------


@pytest.fixture
def play():
    with bk.playground(
        answer=lambda text, labels: text.split("#")[1], one={"latency": 0.03, "jitter": 0.01}
    ) as running:
        yield running


def ask_playground(play, each, rows):
    """What its server saw when asked in three ways, the background first."""

    def begun():
        while not play.one.in_flight:
            time.sleep(0.001)

    ask_at_once(play.one.base_url, each, rows, begun)
    assert play.one.counts == {"answered": sum(rows.values())}
    return play.one.requests


def test_the_server_sees_no_more_at_once_than_the_strictest_allows(play):
    """Three providers of one budget at once have as many requests at the server as the strictest of them allows."""
    each = {name: {"max_concurrency": 4 if name == "background" else 40} for name in NAMES}
    requests = ask_playground(play, each, {"background": 240, "sync": 30, "aio": 30})
    assert max(requests, key=lambda one: one.answered).text.startswith("background"), (
        "the strictest was there throughout"
    )
    assert most_at_once([(one.arrived, one.answered) for one in requests]) <= play.one.peak_in_flight == 4


def test_the_server_is_asked_no_faster_than_one_of_them_may(play):
    """Three providers of one budget take as long as one would: none has a second's worth of its own at the start."""
    each = {name: {"max_concurrency": 40, "rpm": 3_600} for name in NAMES}
    requests = ask_playground(play, each, dict.fromkeys(NAMES, 50))
    # 54 at once and 60 a second take 1.6 s, and less than 0.8 s where only two of the three share what is allowed.
    assert requests[-1].arrived - requests[0].arrived > 1.2


@pytest.mark.slow
def test_the_server_sees_the_limits_kept_in_every_minute(play):
    """For longer than a minute, every half-open 60 s at the server keep to the limits that three providers have."""
    each = {name: {"max_concurrency": 3, "rpm": 150, "tpm": 700_000} for name in NAMES}
    requests = ask_playground(play, each, dict.fromkeys(NAMES, 60))
    assert requests[-1].arrived - requests[0].arrived > 60
    assert play.one.peak_in_flight <= 3
    assert 140 < fullest([(one.arrived, 1) for one in requests]) <= 150
    assert fullest([(one.arrived, one.input_tokens + one.output_tokens) for one in requests]) <= 700_000
