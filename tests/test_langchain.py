"""With LangChain: a true Runnable inside and outside, real vendors' clients against the playground, and providers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from types import SimpleNamespace

import pandas as pd
import pytest

import batchkit as bk

langchain_core = pytest.importorskip("langchain_core")

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler  # noqa: E402
from langchain_core.output_parsers import StrOutputParser  # noqa: E402
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate  # noqa: E402
from langchain_core.runnables import (  # noqa: E402
    Runnable,
    RunnableBranch,
    RunnableLambda,
    RunnableParallel,
)

HANG_UP = {"Connection": "close"}
"""LangChain keeps its clients for ever: without this their sockets outlive the tests."""


class Boom(Exception):
    pass


class Sizes:
    def __init__(self):
        self.batches = []

    async def __call__(self, items):
        self.batches.append(list(items))
        return [Boom(item) if item == "bad" else f"<{item}>" for item in items]

    @property
    def sizes(self):
        return [len(batch) for batch in self.batches]


class OnlyBatch(Runnable):
    """A Runnable whose list processing LangChain's own `abatch` bypasses."""

    def __init__(self):
        self.sizes = []

    def invoke(self, input, config=None, **kwargs):
        raise AssertionError("invoke was called although there is a batch")

    def batch(self, inputs, config=None):
        self.sizes.append(len(inputs))
        return [Boom(item) if item == "bad" else f"<{item}>" for item in inputs]


class Heard(BaseCallbackHandler):
    def __init__(self):
        self.started, self.ended, self.failed, self.parents = [], [], [], {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, **kwargs):
        self.started.append(inputs)
        self.parents[run_id] = parent_run_id

    def on_chain_end(self, outputs, **kwargs):
        self.ended.append(outputs)

    def on_chain_error(self, error, **kwargs):
        self.failed.append(error)


async def gather(runnable, items):
    return await asyncio.gather(*[runnable.ainvoke(item) for item in items])


@pytest.fixture
def play():
    with bk.playground(
        openai={"latency": 0.01}, anthropic={"dialect": "anthropic", "latency": 0.01}, answer=lambda text, labels: text
    ) as running:
        yield running


@pytest.fixture
def gpt(play):
    langchain_openai = pytest.importorskip("langchain_openai")
    return langchain_openai.ChatOpenAI(
        model="some-model", base_url=f"{play.openai.url}/v1", api_key="none", default_headers=HANG_UP
    )


@pytest.fixture
def claude(play):
    langchain_anthropic = pytest.importorskip("langchain_anthropic")
    return langchain_anthropic.ChatAnthropic(
        model="some-model", base_url=play.anthropic.url, api_key="none", default_headers=HANG_UP
    )


# ---- a true Runnable -------------------------------------------------------------------------------


def test_it_is_a_runnable():
    """`RunnableBatch` is a Runnable and pipes with functions and other Runnables on both sides."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(), max_batch_time=0.01)
    assert isinstance(runnable, Runnable)
    chain = (lambda text: text.upper()) | runnable | StrOutputParser()
    assert chain.invoke("a") == "<A>"
    assert asyncio.run(chain.abatch(["a", "b"])) == ["<A>", "<B>"]
    assert list(chain.stream("a")) == ["<A>"]
    assert chain.get_graph().draw_mermaid()


def test_calls_of_a_chain_are_merged():
    """Concurrent calls of a chain meet in the collector that is one of its steps."""
    record = Sizes()
    chain = RunnableLambda(str) | bk.RunnableBatch(batch_fn=record, max_batch_size=4, wait_until_full=True)
    assert asyncio.run(gather(chain, range(8))) == [f"<{item}>" for item in range(8)]
    assert record.sizes == [4, 4]


@pytest.mark.parametrize("is_async", [True, False])
def test_two_collectors_side_by_side_under_one_stream_of_calls(is_async):
    """In `RunnableParallel` each collector batches the same calls by itself."""
    first, second = Sizes(), Sizes()
    both = RunnableParallel(
        openai_result=bk.RunnableBatch(batch_fn=first, max_batch_size=4, wait_until_full=True),
        anthropic_result=bk.RunnableBatch(batch_fn=second, max_batch_size=3, wait_until_full=True),
    )
    if is_async:
        results = asyncio.run(gather(both, range(12)))
    else:
        results = [None] * 12
        calls = [threading.Thread(target=lambda i=i: results.__setitem__(i, both.invoke(i))) for i in range(12)]
        for call in calls:
            call.start()
        for call in calls:
            call.join(30)
    assert results == [{"openai_result": f"<{i}>", "anthropic_result": f"<{i}>"} for i in range(12)]
    assert (first.sizes, second.sizes) == ([4, 4, 4], [3, 3, 3, 3])


@pytest.mark.parametrize("kind", ["branch", "lambda"])
def test_a_router_sends_queries_to_different_collectors(kind):
    """`RunnableBranch` and a function that returns a Runnable choose the collector by the text."""
    creative, rest = Sizes(), Sizes()
    to_creative = bk.RunnableBatch(batch_fn=creative, max_batch_size=2, max_batch_time=60)
    to_rest = bk.RunnableBatch(batch_fn=rest, max_batch_size=3, max_batch_time=60)
    if kind == "branch":
        router = RunnableBranch((lambda text: "creative" in text, to_creative), to_rest)
    else:
        router = RunnableLambda(lambda text: to_creative if "creative" in text else to_rest)
    queries = ["creative 1", "plain 1", "plain 2", "creative 2", "plain 3"]
    assert asyncio.run(gather(router, queries)) == [f"<{query}>" for query in queries]
    assert (sorted(creative.batches), [sorted(batch) for batch in rest.batches]) == (
        [["creative 1", "creative 2"]],
        [["plain 1", "plain 2", "plain 3"]],
    )


def test_fallbacks_retries_and_configs_work_per_item():
    """`with_fallbacks`, `with_retry` and `with_config` concern the item that failed and no other."""
    record = Sizes()
    runnable = bk.RunnableBatch(batch_fn=record, max_batch_size=2, max_batch_time=0.01)
    safe = runnable.with_fallbacks([RunnableLambda(lambda text: "instead")])
    assert asyncio.run(safe.abatch(["good", "bad"])) == ["<good>", "instead"]
    again = runnable.with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    record.batches.clear()
    with pytest.raises(Boom):
        asyncio.run(again.ainvoke("bad"))
    assert record.batches == [["bad"]] * 3
    with pytest.raises(bk.UnknownKeyword, match="max_concurrency"):
        runnable.with_config({"max_concurency": 2}).invoke("good")
    assert runnable.with_config(tags=["x"], max_concurrency=1).batch(["a", "b"]) == ["<a>", "<b>"]


# ---- tracing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ainvoke", "abatch", "invoke", "batch"])
def test_callbacks_hear_of_every_item(method):
    """Each item has a run of its own, with its input and its output or error, on every way to call."""
    runnable = bk.RunnableBatch(batch_fn=Sizes(), max_batch_time=0.01)
    for item in ("good", "bad"):
        heard = Heard()
        call = getattr(runnable, method)
        given = [item] if method.endswith("batch") else item
        config = {"callbacks": [heard]}
        with contextlib.suppress(Boom):
            asyncio.run(call(given, config)) if method.startswith("a") else call(given, config)
        assert heard.started == [item]
        assert (len(heard.ended), len(heard.failed)) == ((1, 0) if item == "good" else (0, 1))


def test_callbacks_run_on_sync_errors_too():
    """A sync call that fails ends its run with the error."""
    heard = Heard()
    with pytest.raises(Boom):
        bk.RunnableBatch(batch_fn=Sizes(), max_batch_time=0.01).invoke("bad", {"callbacks": [heard]})
    assert [type(error) for error in heard.failed] == [Boom]


def test_what_runs_inside_belongs_to_its_own_item():
    """Runs inside the bound Runnable are children of the run of the very item, not of whoever filled the batch."""
    first, second = Heard(), Heard()
    runnable = bk.RunnableBatch(RunnableLambda(lambda text: text.upper()), max_batch_size=2, name="collector")

    async def main():
        return await asyncio.gather(
            runnable.ainvoke("a", {"callbacks": [first]}), runnable.ainvoke("b", {"callbacks": [second]})
        )

    assert asyncio.run(main()) == ["A", "B"]
    for heard, item in ((first, "a"), (second, "b")):
        assert heard.started == [item, item]
        outer, inner = heard.parents
        assert heard.parents == {outer: None, inner: outer}


def test_async_callbacks_may_take_their_time():
    """A handler that waits does not keep the remainder of `abatch` from leaving."""

    class Slow(AsyncCallbackHandler):
        async def on_chain_start(self, serialized, inputs, **kwargs):
            for _ in range(inputs * 3):
                await asyncio.sleep(0)

    record = Sizes()
    runnable = bk.RunnableBatch(batch_fn=record, max_batch_size=4, wait_until_full=True)
    assert asyncio.run(runnable.abatch(list(range(6)), {"callbacks": [Slow()]})) == [f"<{i}>" for i in range(6)]
    assert sum(record.sizes) == 6


# ---- the trap --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [lambda r: r, lambda r: r | StrOutputParser(), lambda r: r.with_config(tags=["x"]), lambda r: str.strip | r],
    ids=["itself", "chain", "binding", "second in a chain"],
)
def test_an_overridden_batch_is_not_bypassed(wrap):
    """A Runnable that overrides only `batch`, without `return_exceptions`, is asked for lists, inside a chain too."""
    inner = OnlyBatch()
    inner.batch = OnlyBatch.batch.__get__(inner)
    if wrap(inner) is inner:
        runnable = bk.RunnableBatch(inner, max_batch_size=2, max_batch_time=60)
        results = asyncio.run(gather_all(runnable, ["a", "bad"]))
        assert results[0] == "<a>"
        assert isinstance(results[1], Boom)
        assert inner.sizes == [2]
        return
    tolerant = Tolerant()
    runnable = bk.RunnableBatch(wrap(tolerant), max_batch_size=2, max_batch_time=60)
    assert asyncio.run(gather_all(runnable, ["a", "b"])) == ["<a>", "<b>"]
    assert tolerant.sizes == [2]


class Tolerant(OnlyBatch):
    def batch(self, inputs, config=None, *, return_exceptions=False, **kwargs):
        return super().batch(inputs)


async def gather_all(runnable, items):
    return await asyncio.gather(*[runnable.ainvoke(item) for item in items], return_exceptions=True)


# ---- real clients against the playground ------------------------------------------------------------


def test_a_chain_of_prompt_model_and_parser_is_collected(play, gpt):
    """`prompt | model | parser` inside a collector answers each call with its own text."""
    chain = ChatPromptTemplate.from_messages([("human", "{text}")]) | gpt | StrOutputParser()
    runnable = bk.RunnableBatch(chain, max_batch_size=3, max_batch_time=60)
    assert asyncio.run(gather(runnable, [f"text {i}" for i in range(9)])) == [f"text {i}" for i in range(9)]
    assert sorted(runnable.stats.batch_sizes) == [3, 3, 3]
    assert len(play.openai.requests) == 9


def test_two_vendors_under_one_stream_of_calls(play, gpt, claude):
    """Ten calls reach both vendors, each through its own collector, and every result is the call's own."""
    both = RunnableParallel(
        openai_result=bk.RunnableBatch(gpt | StrOutputParser(), max_batch_size=5),
        anthropic_result=bk.RunnableBatch(claude | StrOutputParser(), max_batch_size=5),
    )
    texts = [f"text {i}" for i in range(10)]
    results = asyncio.run(gather(both, texts))
    assert results == [{"openai_result": text, "anthropic_result": text} for text in texts]
    assert (len(play.openai.requests), len(play.anthropic.requests)) == (10, 10)


@pytest.mark.parametrize("rows", [30, 60, 120])
def test_vendors_mixed_by_position(play, gpt, claude, rows):
    """Two rows of three go to one vendor at 5 slots and the rest to the other at 3, each answer on its own row."""
    frame = pd.DataFrame({"text": [f"row {i}" for i in range(rows)]})
    one = bk.LangChain(gpt | StrOutputParser(), name="gpt", max_concurrency=5)
    other = bk.LangChain(claude | StrOutputParser(), name="claude", max_concurrency=3)
    labels = list(frame["text"])
    out = frame.llm.classify("text", labels, route=bk.split({one: rows * 2 // 3, other: ...}), progress=False)
    assert list(out["label"]) == labels
    assert list(out["label_provider"]) == ["gpt"] * (rows * 2 // 3) + ["claude"] * (rows - rows * 2 // 3)
    assert (len(play.openai.requests), len(play.anthropic.requests)) == (rows * 2 // 3, rows - rows * 2 // 3)


# ---- a Runnable as a provider -----------------------------------------------------------------------


def ask(runnable, texts=("one", "two"), labels=("one", "two"), **settings):
    provider = bk.LangChain(runnable, **settings)
    return pd.Series(list(texts)).llm.classify(list(labels), route=provider, progress=False, details=False)


def test_a_model_gets_system_and_human_messages():
    """A Runnable that starts with no template gets the task as system message and the row as human message."""
    seen = []

    async def model(messages):
        seen.append([message.type for message in messages])
        assert "one" in messages[0].content
        return messages[-1].content

    assert list(ask(RunnableLambda(model))) == ["one", "two"]
    assert seen == [["system", "human"]] * 2


@pytest.mark.parametrize(
    "prompt",
    [
        PromptTemplate.from_template("Say {text}"),
        ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "Say {text}")]),
        ChatPromptTemplate.from_messages([("human", "{unused}Say {text}")]).partial(unused=""),
        ChatPromptTemplate.from_messages([MessagesPlaceholder("history")]),
    ],
    ids=["text", "chat", "partial", "placeholder"],
)
@pytest.mark.parametrize("bound", [True, False])
def test_a_template_of_one_variable_gets_the_rows_text(prompt, bound):
    """A chain that starts with such a template gets the row as that variable, also inside a binding."""
    chain = prompt | RunnableLambda(lambda value: value.to_string().split()[-1])
    assert list(ask(chain.with_config(tags=["x"]) if bound else chain)) == ["one", "two"]


def test_several_variables_need_to_input():
    """A template of several variables is refused naming `to_input`, which then makes its input."""
    chain = PromptTemplate.from_template("{a} {b}") | RunnableLambda(lambda value: value.text.split()[-1])
    with pytest.raises(bk.ConfigError, match="2 variables"):
        bk.LangChain(chain)
    assert list(ask(chain, to_input=lambda prompt: {"a": prompt.labels[0], "b": str(prompt)})) == ["one", "two"]


@pytest.mark.parametrize("given", [object(), len])
def test_only_runnables_are_taken(given):
    """What is no Runnable is refused with a word on functions."""
    with pytest.raises(bk.ConfigError, match="FunctionProvider"):
        bk.LangChain(given)


class ApiError(Exception):
    """As vendors' clients raise it, as far as that can be relied upon."""

    def __init__(self, status_code, body=None):
        super().__init__("no")
        self.status_code = status_code
        self.body = body


class LibraryError(Exception):
    """As HTTP libraries raise it: only the response knows the status."""

    def __init__(self, status):
        super().__init__("no")
        self.response = SimpleNamespace(status_code=status, headers={"Retry-After-Ms": "10"}, content=b"")


def wrapped(error):
    """A package's own exception around a vendor's."""
    outer = RuntimeError("it did not work")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "attempts", "kind", "message"),
    [
        (ApiError(500), 2, "server", "HTTP 500: no"),
        (ApiError(408), 2, "timeout", "HTTP 408: no"),
        (ApiError(400), 1, "config", "HTTP 400: no"),
        (ApiError(400, {"code": "context_length_exceeded", "message": "too much"}), 1, "context_length", "too much"),
        (ApiError(401, {"error": {"message": "wrong"}}), 1, "auth", "HTTP 401: wrong"),
        (wrapped(ApiError(404)), 1, "config", "HTTP 404: no"),
        (LibraryError(500), 2, "server", "HTTP 500: no"),
        (LibraryError(403), 1, "auth", "HTTP 403: no"),
        (ApiError(200), 1, "function", "ApiError: no"),
        (RuntimeError("<Event> is bound to a different event loop"), 2, "connection", "of no use on batchkit's."),
        (type("ReadTimeout", (Exception,), {})("late"), 2, "timeout", "late"),
        (type("ConnectionLost", (Exception,), {})("gone"), 2, "connection", "ConnectionLost: gone"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_vendors_errors_are_known(error, attempts, kind, message):
    """A client's HTTP error means what it means elsewhere, whatever its class, and decides whether to ask again."""
    calls = []

    async def model(messages):
        calls.append(1)
        raise error

    provider = bk.LangChain(RunnableLambda(model), max_retries=1, name="model")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bk.BatchkitWarning)  # some stop the provider
        out = label(provider, rows=1)
    assert len(calls) == attempts
    assert list(out["label_error"]) == [kind]
    assert out["label_message"][0].endswith(message)


@pytest.fixture(params=["openai", "anthropic"])
def scripted(request):
    """Make a vendor's client that does not retry, of a server that does as a script says."""
    package = pytest.importorskip(f"langchain_{request.param}")
    client = package.ChatOpenAI if request.param == "openai" else package.ChatAnthropic
    with contextlib.ExitStack() as until_the_end:

        def make(key="none", **settings):
            server = {"dialect": request.param, **settings}
            play = until_the_end.enter_context(bk.playground(answer=lambda text, labels: text, server=server))
            base = f"{play.server.url}/v1" if request.param == "openai" else play.server.url
            chat = client(
                model="some-model", base_url=base, api_key=key, max_retries=0, default_headers=HANG_UP, timeout=5
            )
            return play.server, bk.LangChain(chat | StrOutputParser(), name="model", max_concurrency=2)

        yield make


def label(provider, rows=4):
    labels = [f"row {number}" for number in range(rows)]
    return pd.DataFrame({"text": labels}).llm.classify("text", labels, route=provider, progress=False, details="full")


def test_a_rate_limit_pauses_for_as_long_as_it_was_asked_to(scripted):
    """A 429 of a real client is `rate_limited`, is waited for as its header says, and costs no retry."""
    server, provider = scripted(script=["rate_limit_seconds"])
    heard = []
    with bk.observe(heard.append):
        out = label(provider)
    assert list(out["label"]) == list(out["text"])
    run = bk.last_run()
    assert run.requests["error"].dropna().tolist() == ["rate_limited"]
    assert run.requests["status"].dropna().tolist() == [429]
    (pause,) = [event for event in heard if isinstance(event, bk.events.Paused)]
    assert 0 < pause.seconds <= 1
    assert len(server.requests) == 5


def test_a_wrong_key_stops_the_provider(scripted):
    """A real client's 401 is `auth`: the other rows are not asked about, and the key is shown nowhere."""
    secret = "sk-very-secret-0123456789abcdef"
    server, provider = scripted(key=secret, script=lambda text, nth: "key_quoted")
    with pytest.warns(bk.BatchkitWarning, match="stopped"):
        out = label(provider, rows=20)
    assert set(out["label_error"]) == {"auth"}
    assert len(server.requests) <= 3
    run = bk.last_run()
    shown = "".join(table.to_csv() for table in (out, run.requests, run.summary, run.failed))
    assert "[key]" in shown
    assert secret not in shown


@pytest.mark.parametrize(
    ("step", "kind", "stops"),
    [("quota", "quota", True), ("context_length", "context_length", False), ("unknown_model", "config", True)],
)
def test_other_errors_of_real_clients_are_told_apart(scripted, step, kind, stops):
    """No quota and no such model stop the provider, while too long a text is that row's error alone."""
    _, provider = scripted(script=lambda text, nth: step if stops or text.endswith("0") else "ok")
    with pytest.warns(bk.BatchkitWarning, match="stopped") if stops else contextlib.nullcontext():
        out = label(provider)
    assert out["label_error"].dropna().unique().tolist() == [kind]
    assert out["label"].notna().sum() == (0 if stops else 3)


def test_a_server_that_is_not_there_stops_the_provider():
    """Where no connection comes about at all, a real client's rows end at once as `connection`."""
    package = pytest.importorskip("langchain_openai")
    chat = package.ChatOpenAI(model="m", base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0)
    with pytest.warns(bk.BatchkitWarning, match="stopped"):
        out = label(bk.LangChain(chat, name="model"))
    assert set(out["label_error"]) == {"connection"}


def test_a_version_lets_answers_be_kept(tmp_path):
    """Answers are journaled only with `version=`, and another version asks again."""
    calls = []

    async def model(messages):
        calls.append(1)
        return messages[-1].content

    def run(**settings):
        provider = bk.LangChain(RunnableLambda(model), name="model", **settings)
        frame = pd.DataFrame({"text": ["one"]})
        frame.llm.classify("text", ["one", "two"], route=provider, progress=False, journal=tmp_path / "j.sqlite")
        return len(calls)

    counts = [run(), run(), run(version="1"), run(version="1"), run(version="2")]
    assert counts == [1, 2, 3, 3, 4]


# ---- a provider as a Runnable -----------------------------------------------------------------------


def test_a_provider_is_a_runnable(play):
    """`as_runnable()` answers texts and prompts with the reply's text, sync and async, in a chain and collected."""
    runnable = play.openai.provider().as_runnable()
    assert isinstance(runnable, Runnable)
    chain = ChatPromptTemplate.from_messages([("system", "Repeat."), ("human", "{text}")]) | runnable
    assert runnable.invoke("hello") == "hello"
    assert chain.invoke({"text": "hello"}) == "hello"
    assert asyncio.run(chain.abatch([{"text": "a"}, {"text": "b"}])) == ["a", "b"]
    assert bk.RunnableBatch(runnable, max_batch_size=2).batch(["x", "y"]) == ["x", "y"]


def test_a_provider_as_a_runnable_may_choose_among_labels():
    """With `labels=` it returns one of them, as `classify` would."""
    rules = bk.FunctionProvider(lambda prompt: "long" if len(prompt) > 3 else "short", name="rules")
    assert rules.as_runnable(labels=["long", "short"]).batch(["hello", "a"]) == ["long", "short"]
    with pytest.raises(bk.ConfigError, match="labels"):
        bk.Embedded().as_runnable()


@pytest.mark.parametrize("loop", ["engine", "caller"])
def test_a_function_provider_as_a_runnable(loop):
    """A function's own value comes back, whichever loop it runs on; its error is a BatchkitError."""

    async def fn(prompt):
        if prompt == "bad":
            raise Boom("no luck")
        return {"system": prompt.system, "text": str(prompt)}

    runnable = bk.FunctionProvider(fn, loop=loop, name="fn").as_runnable()
    assert asyncio.run(runnable.ainvoke([("system", "Hi."), ("human", "a")])) == {"system": "Hi.", "text": "a"}
    assert runnable.invoke("a")["text"] == "a"
    with pytest.raises(bk.BatchkitError, match="fn: function: Boom: no luck"):
        runnable.invoke("bad")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("human", "a"), ("ai", "b"), ("human", "c")], "got human, ai, human"),
        ([], "got none"),
        ({"text": "a"}, "not dict"),
        (7, "not int"),
    ],
)
def test_what_a_provider_cannot_take_is_refused(given, said):
    """Conversations and other inputs are refused and never cut down to something else."""
    with pytest.raises(bk.BatchkitError, match=said):
        bk.FunctionProvider(str, name="fn").as_runnable().invoke(given)


def test_there_and_back_again():
    """A provider as a Runnable can be a provider again, on the engine's own loop."""
    inner = bk.FunctionProvider(lambda prompt: str(prompt), name="inner")
    assert list(ask(inner.as_runnable(), name="outer")) == ["one", "two"]
