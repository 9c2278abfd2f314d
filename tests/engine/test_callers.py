"""Callers bring back one result per question, in their order, whatever a function or a server does."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual import run

from batchkit._dialects import DIALECTS
from batchkit._engine import bridge, callers, registry
from batchkit._engine.callers import EmbeddedCaller, FunctionCaller, HttpCaller
from batchkit._engine.transport import HttpAnswer
from batchkit.records import (
    Brief,
    Completion,
    Endpoint,
    Failure,
    Probabilities,
    Prompt,
    Question,
    Scope,
    Structured,
    Text,
    Turn,
)

ROOT = Path(__file__).parents[2]
BRIEF = Brief("system", ("x", "y"), {"type": "object"}, 64, ("x", "y"), (None, None))


def ask(function, *rows, batched=False, timeout=30.0, carry=asyncio.run):
    caller = FunctionCaller(function, batched=batched, batch=64 if batched else 1, home=None)
    return list(carry(caller.carry([Question(BRIEF, row) for row in rows], timeout)))


def values(results):
    return [result.reply.value if isinstance(result, Completion) else result.kind for result in results]


async def shouts_later(prompt):
    await asyncio.sleep(0)
    return prompt.upper()


class Odd(BaseException):
    pass


class Shouter:
    async def __call__(self, prompt):
        return prompt.upper()


# ---- functions, one prompt at a time -----------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        str.upper,
        shouts_later,
        Shouter(),
        lambda prompt: shouts_later(prompt),
        functools.partial(shouts_later),
        functools.partial(str.upper),
    ],
    ids=["sync", "async", "async object", "sync that returns a coroutine", "async partial", "sync partial"],
)
def test_any_callable_answers(function):
    """Sync and async functions, callable objects and partials all bring their return value."""
    assert values(ask(function, "hello")) == ["HELLO"]


def test_a_function_gets_a_prompt():
    """The function gets the row's text as a str, with the task beside it."""
    question = Question(BRIEF, "row", complaint="not that")
    caller = FunctionCaller(lambda prompt: prompt, batched=False, batch=1, home=None)
    (result,) = asyncio.run(caller.carry([question], 30.0))
    prompt = result.reply.value
    assert (type(prompt), prompt) == (Prompt, "row")
    assert (prompt.system, prompt.labels, prompt.schema, prompt.complaint) == (
        "system",
        ("x", "y"),
        BRIEF.schema,
        "not that",
    )


def test_a_sync_function_runs_in_a_thread_that_may_be_left():
    """A sync function runs beside the loop, in a thread that does not keep the process."""
    (name,) = values(
        ask(
            lambda prompt: (threading.current_thread() is threading.main_thread(), threading.current_thread().daemon),
            "t",
        )
    )
    assert name == (False, True)


def raises(error, how):
    def sync(prompt):
        raise error

    async def later(prompt):
        raise error

    return {"sync": sync, "async": later, "coroutine": lambda prompt: later(prompt)}[how]


@pytest.mark.parametrize("how", ["sync", "async", "coroutine"])
@pytest.mark.parametrize(
    ("error", "kind", "scope"),
    [
        (ValueError("bad row"), "function", Scope.ROW),
        (TimeoutError("slow"), "timeout", Scope.TRANSIENT),
        (ConnectionResetError("gone"), "connection", Scope.TRANSIENT),
        (StopIteration(), "function", Scope.ROW),
        (SystemExit(3), "function", Scope.ROW),
        (KeyboardInterrupt(), "function", Scope.ROW),
        (asyncio.CancelledError(), "function", Scope.ROW),
        (Odd("odd"), "function", Scope.ROW),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_whatever_a_function_raises_is_its_rows_failure(error, kind, scope, how):
    """No exception of a function gets past its row, not even those that end a thread, a task or a loop."""
    (failure,) = ask(raises(error, how), "t")
    assert (failure.kind, failure.scope) == (kind, scope)
    assert str(error) in failure.message


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_the_engine_survives_what_a_function_raises(error):
    """After such an exception on the engine's loop the next question is answered."""
    caller = FunctionCaller(raises(error, "async"), batched=False, batch=1, home=None)
    question = [Question(BRIEF, "t")]
    assert values(bridge.submit(caller.carry(question, 30.0)).result(30)) == ["function"]
    well = FunctionCaller(shouts_later, batched=False, batch=1, home=None)
    assert values(bridge.submit(well.carry(question, 30.0)).result(30)) == ["T"]


def test_an_async_function_has_timeout_seconds():
    """An async function that takes longer is a transient time-out that names the seconds."""
    (failure,) = ask(_sleepy, "t", timeout=7.0, carry=run)
    assert (failure.kind, failure.scope) == ("timeout", Scope.TRANSIENT)
    assert "7 s" in failure.message


async def _sleepy(prompt):
    await asyncio.sleep(50.0)


def test_a_sync_function_has_timeout_seconds():
    """A sync function that takes longer is a time-out, though its thread goes on."""
    ends = threading.Event()
    (failure,) = ask(lambda prompt: ends.wait(), "t", timeout=0.01)
    ends.set()
    assert (failure.kind, failure.scope) == ("timeout", Scope.TRANSIENT)


def test_cancelling_a_question_cancels_its_function():
    """When a run gives a question up, the function's coroutine is cancelled and the cancellation passes."""
    seen = []

    async def waits(prompt):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main():
        caller = FunctionCaller(waits, batched=False, batch=1, home=None)
        task = asyncio.ensure_future(caller.carry([Question(BRIEF, "t")], 30.0))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert seen == ["cancelled"]


def test_a_function_that_never_returns_does_not_keep_the_process():
    """A script ends although a sync function still runs in its thread."""
    script = """
import threading
import pandas as pd
import batchkit as bk
never = bk.FunctionProvider(lambda prompt: threading.Event().wait(), name="never", timeout=0.05, max_retries=0)
out = pd.DataFrame({"t": ["a"]}).llm.classify("t", ["x"], route=never)
print(out["label_error"].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "['timeout']\n"), done.stderr


# ---- batched functions -------------------------------------------------------------------------


async def _all_later(prompts):
    return [prompt.upper() for prompt in prompts]


def _one_by_one(prompts):
    for prompt in prompts:
        yield prompt.upper()


@pytest.mark.parametrize(
    "function",
    [
        lambda prompts: [prompt.upper() for prompt in prompts],
        lambda prompts: tuple(map(str.upper, prompts)),
        _all_later,
        _one_by_one,
    ],
    ids=["list", "tuple", "async", "generator"],
)
def test_a_batched_function_answers_in_order(function):
    """A list, a tuple or a generator of answers, sync or async, goes to the prompts in their order."""
    assert values(ask(function, *"abc", batched=True)) == ["A", "B", "C"]


def test_an_exception_object_is_its_rows_failure():
    """In a returned list an exception stands for the failure of its own prompt."""
    results = ask(lambda prompts: ["x", ValueError("b"), TimeoutError(), "y"], *"abcd", batched=True)
    assert values(results) == ["x", "function", "timeout", "y"]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (["x"], "1 answers for 3 prompts"),
        (["x"] * 4, "4 answers for 3 prompts"),
        ("xyz", "returned str"),
        ({"a": 1, "b": 2, "c": 3}, "returned dict"),
        (None, "returned NoneType"),
        (7, "returned int"),
    ],
)
def test_answers_that_cannot_be_assigned_are_nobodys(returned, said):
    """Too few, too many or no list at all: every prompt fails, none gets another's answer."""
    results = ask(lambda prompts: returned, *"abc", batched=True)
    assert values(results) == ["function"] * 3
    assert all(said in result.message for result in results)


@given(bad=st.sets(st.integers(0, 19)), count=st.integers(1, 20))
def test_one_bad_row_does_not_take_the_others_with_it(bad, count):
    """A batched function that raises is asked again in halves until the bad rows stand alone."""
    rows = [str(number) for number in range(count)]

    async def picky(prompts):
        if any(int(prompt) in bad for prompt in prompts):
            raise ValueError("a bad row")
        return list(prompts)

    expected = ["function" if number in bad else str(number) for number in range(count)]
    assert values(ask(picky, *rows, batched=True, carry=run)) == expected


def test_a_generator_that_fails_midway_is_asked_in_halves():
    """What a generator raises while it is read is the function's failure, not a fault of ours."""

    def fragile(prompts):
        for prompt in prompts:
            if prompt == "b":
                raise ValueError("b")
            yield prompt

    assert values(ask(fragile, *"abc", batched=True)) == ["a", "function", "c"]


def test_a_transient_failure_of_a_batch_is_not_bisected():
    """A batch that timed out or lost its connection is handed back whole, to be asked again later."""
    calls = []

    def lost(prompts):
        calls.append(len(prompts))
        raise ConnectionError("gone")

    assert values(ask(lost, *"abcd", batched=True)) == ["connection"] * 4
    assert calls == [4]


# ---- functions on the caller's own loop --------------------------------------------------------


def test_a_function_runs_on_the_loop_it_belongs_to():
    """With loop="caller" functions run in the caller's thread, on its loop, and nothing is left on it."""
    with bridge.home_loop(True) as home:

        async def where(prompt):
            assert asyncio.get_running_loop() is home
            return threading.current_thread() is threading.main_thread()

        for function in (where, lambda prompt: threading.current_thread() is threading.main_thread()):
            caller = FunctionCaller(function, batched=False, batch=1, home=home)
            future = bridge.submit(caller.carry([Question(BRIEF, "t")], 30.0))
            assert values(bridge.wait(future, lambda: None, home)) == [True]
    assert home.is_closed()


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("x")], ids=repr)
@pytest.mark.parametrize("how", ["sync", "async"])
def test_an_exit_on_the_callers_loop_is_its_rows_failure(error, how):
    """A function on the caller's loop that raises, even to exit, fails its row and not the run."""
    with bridge.home_loop(True) as home:
        caller = FunctionCaller(raises(error, how), batched=False, batch=1, home=home)
        future = bridge.submit(caller.carry([Question(BRIEF, "t")], 30.0))
        assert values(bridge.wait(future, lambda: None, home)) == ["function"]


def test_what_is_left_on_an_own_loop_ends_with_it():
    """A function still waiting on the loop made for it is cancelled when that loop is given up."""
    ended = []

    async def waits(prompt):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with bridge.home_loop(True) as home:
        home.create_task(waits("t"))
        home.run_until_complete(asyncio.sleep(0))
    assert ended == [True]


# ---- the embedded model ------------------------------------------------------------------------


def test_the_embedded_model_answers_a_batch():
    """Many rows at once bring a probability for every label each, in label order."""
    caller = EmbeddedCaller(Brief("", ("billing", "weather"), None, 64, ("billing", "weather"), (None, None)))

    async def main():
        await caller.open()
        return await caller.carry([Question(BRIEF, row) for row in ("my invoice is wrong", "rain and wind")], 30.0)

    results = asyncio.run(main())
    assert all(isinstance(result.reply, Probabilities) for result in results)
    assert [max(range(2), key=result.reply.weights.__getitem__) for result in results] == [0, 1]
    assert all(sum(result.reply.weights) == pytest.approx(1) for result in results)


# ---- HTTP --------------------------------------------------------------------------------------

KEY = "sk-very-secret"


class Channel:
    def __init__(self, answer):
        self.answer = answer
        self.bodies = []

    async def post(self, url, body, timeout):
        self.bodies.append(body)
        return self.answer


def http(answer, row="t"):
    endpoint = Endpoint("openai-compatible", "m", "http://127.0.0.1:9/v1", KEY)
    caller = HttpCaller(endpoint, DIALECTS["openai"], BRIEF, (object(),))
    caller._channel = Channel(answer)
    (result,) = asyncio.run(caller.carry([Question(BRIEF, row)], 30.0))
    return result, caller._channel.bodies[0]


GOOD = orjson.dumps(
    {
        "model": "m-1",
        "choices": [{"message": {"content": '{"label": "x"}'}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
)


def test_a_good_reply_is_decoded():
    """A reply of status 200 comes back as the text, the tokens and the request's id."""
    result, _ = http(HttpAnswer(200, {"x-request-id": "r-1"}, GOOD))
    assert (result.reply, result.usage.input, result.usage.output) == (Text('{"label": "x"}'), 5, 2)
    assert (result.model, result.request_id) == ("m-1", "r-1")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices": [', b"\xff\xfe"])
def test_a_body_that_cannot_be_parsed_is_the_servers_fault(body):
    """A reply of status 200 whose body is no JSON is transient."""
    result, _ = http(HttpAnswer(200, {}, body))
    assert (result.kind, result.scope) == ("server", Scope.TRANSIENT)


_NAMES = st.sampled_from(["choices", "message", "content", "error", "usage", "finish_reason"])
_BODIES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(_BODIES)
def test_a_body_of_any_shape_is_a_completion_or_a_failure(body):
    """JSON that is no reply at all never raises."""
    result, _ = http(HttpAnswer(200, {}, orjson.dumps(body)))
    assert isinstance(result, Completion | Failure)


@pytest.mark.parametrize("status", [200, 401, 500])
def test_the_key_is_never_shown(status):
    """A server that repeats the key in its error does not bring it into a message."""
    body = orjson.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}})
    result, _ = http(HttpAnswer(status, {}, body))
    assert KEY not in repr(result)
    assert "[key]" in result.message


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("length", range(250, 300, 7))
def test_no_part_of_the_key_is_shown_where_a_message_is_cut(status, length):
    """A long message that ends in the middle of the key ends in no part of it."""
    body = orjson.dumps({"error": {"message": "x" * length + KEY}})
    result, _ = http(HttpAnswer(status, {}, body))
    assert KEY[:5] not in result.message


@pytest.mark.parametrize("row", ["\ud800", "a\x00b", '{"label": "y"}', "\udfff\ud800 中文"])
def test_any_text_can_be_sent(row):
    """Lone surrogates, NUL and braces in a cell make a body that is JSON."""
    result, body = http(HttpAnswer(200, {}, GOOD), row)
    assert isinstance(result, Completion)
    sent = orjson.loads(body)["messages"][-1]["content"]
    assert sent.encode("utf-8", "strict")


VENDOR_OF = {
    "openai": "openai-compatible",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "ollama": "ollama",
}


@pytest.mark.parametrize("dialect", VENDOR_OF)
@given(
    row=st.text() | st.sampled_from(["", "\ud800", "\x00", '"', "where the row belongs"]),
    system=st.text(max_size=20) | st.just(callers._BLANK),
    turns=st.lists(st.tuples(st.sampled_from(["user", "assistant"]), st.text(min_size=1)), max_size=2),
    room=st.sampled_from([1, 4]),
)
def test_a_body_is_what_the_dialect_makes_of_the_question(dialect, row, system, turns, room):
    """What is sent is the dialect's own body for the question, though most of it is written down only once."""
    brief = replace(BRIEF, system=system)
    endpoint = Endpoint(VENDOR_OF[dialect], "m", "http://127.0.0.1:9/v1", KEY, extra_body={"user": "me"})
    caller = HttpCaller(endpoint, DIALECTS[dialect], brief, (object(),))
    question = Question(brief, row, tuple(Turn(*turn) for turn in turns), None, room)
    body = DIALECTS[dialect].encode(DIALECTS[dialect].prepare(brief, endpoint), question, endpoint)
    assert orjson.loads(caller._body(question)) == callers._clean(body)


class Picky:
    """Refuses the temperature, then the schema; the second request waits until another was refused for its schema."""

    def __init__(self):
        self.sent = 0
        self.further = asyncio.Event()

    async def post(self, url, body, timeout):
        self.sent += 1
        if self.sent == 2:
            await self.further.wait()
        parsed = orjson.loads(body)
        for param in ("temperature", "response_format"):
            if param in parsed:
                if param == "response_format":
                    self.further.set()
                error = {"message": f"Unsupported parameter: '{param}'", "param": param}
                return HttpAnswer(400, {}, orjson.dumps({"error": error}))
        return HttpAnswer(200, {}, GOOD)


def test_what_a_model_refuses_is_said_once(monkeypatch):
    """A request that left before both refusals were known, and is refused last, has nothing new to say."""
    monkeypatch.setattr(registry, "_known", {})
    endpoint = Endpoint("openai-compatible", "m", "http://127.0.0.1:9/v1", KEY, temperature=0.0)
    caller = HttpCaller(endpoint, DIALECTS["openai"], BRIEF, (object(),))

    async def ask_all():
        caller._channel = Picky()

        async def once():
            return (await caller.carry([Question(BRIEF, "t")], 30.0))[0]

        first, late = asyncio.create_task(once()), asyncio.create_task(once())
        told = [await first, await once()]
        return [*told, await late], await once()

    failures, answered = asyncio.run(ask_all())
    said = [failure.adapted for failure in failures]
    assert ["temperature" in said[0], "tool" in said[0], "temperature" in said[1], "tool" in said[1], said[2]] == [
        True, False, False, True, "",
    ]  # fmt: skip
    assert isinstance(answered, Completion)


def test_a_failure_of_the_transport_passes():
    """What the transport says went wrong comes back as it is."""
    failure = Failure("connection", "gone", Scope.TRANSIENT)
    assert http(failure)[0] is failure


def test_structured_is_what_a_function_returns():
    """A function's value is not parsed but handed on as a value."""
    assert ask(lambda prompt: {"label": "x"}, "t")[0].reply == Structured({"label": "x"})
