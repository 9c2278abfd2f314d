"""A playground server over real HTTP: replies, refusals, limits and faults as a client meets them."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from batchkit._dialects.ratelimits import read_allowances
from batchkit._playground import RunningServer, Server, playground

LABELS = ["billing", "delivery"]
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": LABELS}, "confidence": {"type": "number"}},
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
HEADERS = {"openai": {"authorization": "Bearer k"}, "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"}}
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic"])

pytestmark = pytest.mark.asyncio


def _first(text: str, labels: Any) -> Any:
    return labels[0]


def _upper(text: str, labels: Any) -> Any:
    return text.upper()


def _body(dialect: str, text: str = "where is my parcel?", cap: int = 100, **changes: Any) -> dict[str, Any]:
    row = {"role": "user", "content": text}
    if dialect == "anthropic":
        form = {"format": {"type": "json_schema", "schema": SCHEMA}}
        return {"model": "m", "max_tokens": cap, "messages": [row], "output_config": form, **changes}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    return {"model": "m", "max_completion_tokens": cap, "messages": [row], "response_format": form, **changes}


GEMINI = {
    "contents": [{"role": "user", "parts": [{"text": "where is my parcel?"}]}],
    "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA},
}
RESPONSES = {
    "model": "m",
    "input": "where is my parcel?",
    "text": {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}},
}
OLLAMA = {"model": "m", "messages": _body("openai")["messages"], "stream": False, "format": SCHEMA}
GEMINI_KEY = {"x-goog-api-key": "k"}
BEARER = {"authorization": "Bearer k"}
PLAIN = {"model": "m", "messages": _body("openai")["messages"]}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def _post(
    server: RunningServer, body: Any = None, *, path: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, Any, Any]:
    dialect = server.server.dialect
    sent = body if isinstance(body, bytes) else json.dumps(body or _body(dialect)).encode()
    url = server.url + (path or PATHS[dialect])
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=io.BytesIO(sent), headers=HEADERS[dialect] if headers is None else headers) as answer,
    ):
        raw = await answer.read()
        return answer.status, json.loads(raw) if answer.content_type == "application/json" else raw, answer.headers


def _said(dialect: str, reply: Any) -> tuple[str, str]:
    if dialect == "anthropic":
        return reply["content"][0]["text"], reply["stop_reason"]
    return reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]


def _error_kind(dialect: str, reply: Any) -> str:
    return reply["error"]["type"] if dialect == "anthropic" else reply["error"]["code"] or reply["error"]["type"]


@DIALECTS
async def test_a_label_comes_back(dialect):
    """A labelling request is answered with the embedded model's label and confidence, in the vendor's shape."""
    async with playground(s=Server(dialect)) as play:
        status, reply, headers = await _post(play.s)
    text, finish = _said(dialect, reply)
    answer = json.loads(text)
    assert (status, answer["label"], finish) == (200, "delivery", {"openai": "stop", "anthropic": "end_turn"}[dialect])
    assert 0.5 < answer["confidence"] < 1
    assert headers[{"openai": "x-request-id", "anthropic": "request-id"}[dialect]].startswith("req_")


@DIALECTS
async def test_the_base_url_may_lack_the_version(dialect):
    """A server answers with and without /v1 in the path."""
    async with playground(answer=_first, s=Server(dialect)) as play:
        status, _, _ = await _post(play.s, path=PATHS[dialect].removeprefix("/v1"))
    assert status == 200


@DIALECTS
async def test_a_request_is_recorded(dialect):
    """The record of a request says what was asked, what came of it and what it took."""
    async with playground(answer=_first, s=Server(dialect)) as play:
        await _post(play.s, _body(dialect, "a row"))
        (request,) = play.s.requests
    assert (request.path, request.fate, request.status, request.text) == (PATHS[dialect], "answered", 200, "a row")
    assert request.arrived <= request.answered
    assert (request.latency, request.input_tokens, request.output_tokens, request.connections) == (0.0, 2, 9, 1)


@DIALECTS
async def test_another_path_is_not_found(dialect):
    """A server knows its own dialect's paths and methods only."""
    other = {"openai": "anthropic", "anthropic": "openai"}[dialect]
    async with playground(answer=_first, s=Server(dialect)) as play:
        for path in (PATHS[other], "/v1/models", "/", "/v1/v1/models"):
            status, reply, _ = await _post(play.s, path=path)
            assert (status, "Invalid URL" in reply["error"]["message"]) == (404, True)
        assert play.s.counts == {"refused": 4}


@DIALECTS
@pytest.mark.parametrize(("key", "status"), [("k", 401), (None, 401), ("right", 200)])
async def test_the_key_must_be_right(dialect, key, status):
    """With a key set a wrong one and none are refused with HTTP 401 in the vendor's shape."""
    headers = (
        {} if key is None else {"openai": {"authorization": f"Bearer {key}"}, "anthropic": {"x-api-key": key}}[dialect]
    )
    async with playground(answer=_first, s=Server(dialect, api_key="right")) as play:
        found, reply, _ = await _post(play.s, headers={**headers, "anthropic-version": "2023-06-01"})
    assert found == status
    if status == 401:
        assert _error_kind(dialect, reply) in ("invalid_api_key", "authentication_error")
        assert "right" not in json.dumps(reply)


@DIALECTS
async def test_the_model_must_be_known(dialect):
    """With models named, any other is refused with HTTP 404 in the vendor's shape."""
    async with playground(answer=_first, s=Server(dialect, models=["m"])) as play:
        known, _, _ = await _post(play.s)
        unknown, reply, _ = await _post(play.s, _body(dialect, model="n"))
    assert (known, unknown) == (200, 404)
    assert _error_kind(dialect, reply) in ("model_not_found", "not_found_error")
    assert "`n`" in reply["error"]["message"]


@DIALECTS
@pytest.mark.parametrize("body", [b"", b"{", b'"text"', b"\xff", b'{"model": "m"}'])
async def test_a_bad_body_is_refused(dialect, body):
    """A body that is no request of the vendor's is answered with HTTP 400 in its shape."""
    async with playground(answer=_first, s=Server(dialect)) as play:
        status, reply, _ = await _post(play.s, body)
    assert status == 400
    assert reply["error"]["type"] == "invalid_request_error"


@DIALECTS
async def test_models_are_listed(dialect):
    """The list of models is given in the vendor's shape."""
    async with playground(s=Server(dialect, models=["m", "n"])) as play:
        url = play.s.url + "/v1/models"
        async with aiohttp.ClientSession() as session, session.get(url, headers=HEADERS[dialect]) as answer:
            listed = await answer.json()
        assert play.s.counts == {"models": 1}
    assert [model["id"] for model in listed["data"]] == ["m", "n"]
    assert ("has_more" in listed) == (dialect == "anthropic")


async def test_a_large_body_is_read():
    """A row of many megabytes is judged as any other."""
    async with playground(answer=lambda text, labels: labels[len(text) > 1_000_000], s=Server()) as play:
        status, reply, _ = await _post(play.s, _body("openai", "x" * 8_000_000))
    assert (status, json.loads(_said("openai", reply)[0])["label"]) == (200, "delivery")


@DIALECTS
async def test_server_errors_have_the_vendors_shape(dialect):
    """An injected server error is HTTP 500 with the vendor's error body."""
    async with playground(answer=_first, s=Server(dialect, server_errors=1)) as play:
        status, reply, _ = await _post(play.s)
        assert play.s.counts == {"server_error": 1}
    assert (status, _error_kind(dialect, reply)) == (500, {"openai": "server_error", "anthropic": "api_error"}[dialect])


async def test_garbage_is_not_json():
    """An injected unparsable body comes with HTTP 200."""
    async with playground(answer=_first, s=Server(garbage=1)) as play:
        status, raw, _ = await _post(play.s)
    assert (status, raw[:6]) == (200, b"<html>")


async def test_drops_close_the_connection():
    """An injected drop closes the connection without an answer, and holds no place afterwards."""
    async with playground(answer=_first, s=Server(drops=1, max_concurrency=1)) as play:
        for _ in range(3):
            with pytest.raises(aiohttp.ClientConnectionError):
                await _post(play.s)
        assert (play.s.counts, play.s.in_flight) == ({"drop": 3}, 0)
        assert {request.status for request in play.s.requests} == {None}


async def test_an_invalid_label_is_no_label():
    """An injected invalid answer is well-formed and names a label that nobody offered."""
    async with playground(answer=_first, s=Server(invalid=1)) as play:
        status, reply, _ = await _post(play.s)
    assert status == 200
    assert json.loads(_said("openai", reply)[0])["label"] not in LABELS


async def test_without_labels_no_answer_is_invalid():
    """Where no labels were offered no label can be wrong."""
    async with playground(answer=_upper, s=Server(invalid=1)) as play:
        status, reply, _ = await _post(play.s, {"model": "m", "messages": [{"role": "user", "content": "hello"}]})
        assert play.s.counts == {"answered": 1}
    assert (status, _said("openai", reply)[0]) == (200, "HELLO")


@DIALECTS
async def test_a_truncated_answer_is_whole_with_more_room(dialect):
    """An injected truncation cuts the answer as long as the cap is the first one, and not with a larger cap."""
    async with playground(answer=_first, s=Server(dialect, truncated=1)) as play:
        _, first, _ = await _post(play.s, _body(dialect, cap=100))
        _, second, _ = await _post(play.s, _body(dialect, cap=100))
        _, third, _ = await _post(play.s, _body(dialect, cap=200))
        assert [request.fate for request in play.s.requests] == ["truncated", "truncated", "answered"]
    assert _said(dialect, first) == _said(dialect, second)
    assert _said(dialect, first)[1] == {"openai": "length", "anthropic": "max_tokens"}[dialect]
    assert _said(dialect, third)[0].startswith(_said(dialect, first)[0])
    assert json.loads(_said(dialect, third)[0])["label"] == "billing"


@DIALECTS
async def test_a_cap_is_kept(dialect):
    """An answer longer than its cap on output tokens is cut there and says so."""
    async with playground(s=Server(dialect)) as play:
        body = _body(dialect, "中文" * 50, cap=5)
        del body[{"openai": "response_format", "anthropic": "output_config"}[dialect]]
        _, reply, _ = await _post(play.s, body)
    assert _said(dialect, reply) == ("中文" * 3, {"openai": "length", "anthropic": "max_tokens"}[dialect])


async def test_a_hang_lasts_until_the_client_leaves():
    """An injected hang is never answered, and is over when the client has had enough."""
    async with playground(answer=_first, s=Server(hangs=1)) as play:
        asking = asyncio.create_task(_post(play.s))
        await _until(lambda: play.s.in_flight == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await _until(lambda: play.s.in_flight == 0)
        assert play.s.counts == {"hang": 1}


@DIALECTS
async def test_concurrency_is_limited(dialect):
    """One request more than may be answered at once is refused with HTTP 429 in the vendor's shape."""
    async with playground(answer=_first, s=Server(dialect, hangs=1, max_concurrency=2)) as play:
        asking = [asyncio.create_task(_post(play.s, _body(dialect, f"row {number}"))) for number in range(3)]
        done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        status, reply, _ = await done.pop()
        assert (status, len(waiting)) == (429, 2)
        assert _error_kind(dialect, reply) in ("rate_limit_exceeded", "rate_limit_error")
        assert play.s.counts == {"over_concurrency": 1}
        assert (play.s.peak_in_flight, play.s.peak_connections) == (3, 3)
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(outcome, aiohttp.ClientConnectionError) for outcome in outcomes)


@DIALECTS
async def test_the_rate_is_limited(dialect):
    """A request beyond the quota is refused with HTTP 429 that says how long to wait."""
    async with playground(answer=_first, s=Server(dialect, rpm=0.001)) as play:
        first, _, _ = await _post(play.s)
        second, reply, headers = await _post(play.s)
        assert play.s.counts == {"answered": 1, "over_rpm": 1}
    assert (first, second) == (200, 429)
    assert _error_kind(dialect, reply) in ("rate_limit_exceeded", "rate_limit_error")
    assert 50_000 < int(headers["retry-after"]) <= 60_000


@DIALECTS
async def test_tokens_are_limited(dialect):
    """A request beyond the quota of tokens is refused with HTTP 429 that says how long to wait."""
    async with playground(answer=_first, s=Server(dialect, tpm=0.06)) as play:
        first, _, _ = await _post(play.s, _body(dialect, "a row", cap=50))
        second, reply, headers = await _post(play.s, _body(dialect, "a row", cap=50))
        assert play.s.counts == {"answered": 1, "over_tpm": 1}
    assert (first, second) == (200, 429)
    assert _error_kind(dialect, reply) in ("rate_limit_exceeded", "rate_limit_error")
    assert reply["error"]["message"] == "Limit of 0.06 tokens per minute reached."
    # 2 tokens of input and 9 of output were used, 1 was there, and 1 is the most that there can be.
    assert 10_900 < int(headers["retry-after"]) <= 11_000


async def test_openai_says_which_limit_was_reached():
    """An error of OpenAI's says whether there were too many requests or tokens."""
    for limits, kind in (({"rpm": 0.001}, "requests"), ({"tpm": 0.001}, "tokens")):
        async with playground(answer=_first, s=Server(**limits)) as play:
            await _post(play.s)
            _, reply, _ = await _post(play.s)
        assert (reply["error"]["type"], reply["error"]["code"]) == (kind, "rate_limit_exceeded")


async def test_tokens_are_those_of_input_and_cap_until_the_answer():
    """While a request is answered its whole cap counts, and afterwards what it used."""
    limits = {"tpm": 60_000, "limit_headers": True}
    async with (
        playground(answer=_first, s=Server(hangs=1, **limits)) as hanging,
        playground(answer=_first, s=Server(**limits)) as answering,
    ):
        asking = asyncio.create_task(_post(hanging.s, _body("openai", "a row", cap=998_000)))
        await _until(lambda: hanging.s.in_flight == 1)
        status, _, headers = await _post(hanging.s, _body("openai", "a row", cap=1))
        assert (status, headers["x-ratelimit-remaining-tokens"]) == (429, "0")
        asking.cancel()
        _, _, headers = await _post(answering.s, _body("openai", "a row", cap=998_000))
        assert 59_989 <= int(headers["x-ratelimit-remaining-tokens"]) <= 60_000
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_request_over_the_tokens_takes_no_request():
    """What is refused for its tokens leaves the quota of requests as it was."""
    async with playground(answer=_first, s=Server(rpm=120, tpm=0.001, limit_headers=True)) as play:
        for _ in range(9):
            await _post(play.s)
        assert play.s.counts == {"answered": 1, "over_tpm": 8}


@DIALECTS
@pytest.mark.parametrize("settings", [{}, {"server_errors": 1}, {"garbage": 1}, {"script": ["overloaded"]}])
async def test_limits_are_announced_on_every_answer_to_a_question(dialect, settings):
    """Answers, errors and refusals all say what is left, in headers that read as what was set."""
    server = Server(dialect, rpm=0.5, tpm=6_000_000, limit_headers=True, **settings)
    async with playground(answer=_first, s=server) as play:
        answers = [await _post(play.s) for _ in range(2)]
        answers.append(await _post(play.s, _body(dialect, nonsense=1)))
    assert [status for status, _, _ in answers][1:] == [429, 400]
    for _, _, headers in answers:
        told = read_allowances(headers, time.time())
        assert (told.requests.limit, told.requests.remaining, told.requests.window) == (0.5, 0, 60)
        # Anthropic's times are in whole seconds, and no longer than a minute.
        assert told.requests.reset == pytest.approx({"openai": 120, "anthropic": 60}[dialect], abs=2)
        assert (told.tokens.limit, told.tokens.window) == (6_000_000, 60)
        assert told.tokens.remaining > 5_900_000


@pytest.mark.parametrize(
    ("server", "path", "body"),
    [
        (Server("gemini", rpm=60, tpm=60, limit_headers=True), "/v1beta/models/m:generateContent", GEMINI),
        (Server("ollama", rpm=60, tpm=60, limit_headers=True), "/api/chat", OLLAMA),
        (Server("ollama", rpm=60, tpm=60, limit_headers=True), "/v1/chat/completions", PLAIN),
        (Server(vendor="vllm", rpm=60, tpm=60, limit_headers=True), "/v1/chat/completions", PLAIN),
        (Server(rpm=60, tpm=60), "/v1/chat/completions", PLAIN),
        (Server(limit_headers=True), "/v1/chat/completions", PLAIN),
    ],
)
async def test_who_announces_no_limits_sends_no_headers(server, path, body):
    """Vendors without such headers, servers not told to send them and those without limits send none."""
    async with playground(answer=_upper, s=server) as play:
        status, _, headers = await _post(play.s, body, path=path, headers={**BEARER, **GEMINI_KEY})
    assert (status, [name for name in headers if "limit" in name.lower()]) == (200, [])


async def test_only_questions_are_told_the_limits():
    """The list of models, a wrong path and a wrong key say nothing of limits."""
    async with playground(answer=_first, s=Server(rpm=60, limit_headers=True, api_key="right")) as play:
        for path, headers in (("/v1/models", BEARER), ("/nowhere", BEARER), (None, BEARER)):
            _, _, found = await _post(play.s, path=path, headers=headers)
            assert read_allowances(found, 0.0) is None


@pytest.mark.parametrize("value", [object(), float])
async def test_an_answer_that_is_no_json_is_a_server_error(value):
    """A function that returns what JSON cannot hold makes an HTTP 500 that says so."""
    async with playground(answer=lambda text, labels: value, s=Server()) as play:
        status, reply, _ = await _post(play.s)
        assert play.s.counts == {"answer_raised": 1}
    assert (status, "No answer could be made" in reply["error"]["message"]) == (500, True)


async def test_an_answer_that_raises_is_a_server_error():
    """A function that raises makes an HTTP 500 that names its exception, and the server goes on."""

    calls = itertools.count()

    def fails_at_first(text: str, labels: Any) -> Any:
        return labels[0] if next(calls) else {}["nothing"]

    async with playground(answer=fails_at_first, s=Server()) as play:
        first, reply, _ = await _post(play.s)
        second, _, _ = await _post(play.s)
    assert (first, second) == (500, 200)
    assert "KeyError" in reply["error"]["message"]


async def test_faults_do_not_depend_on_the_order():
    """The same rows meet the same fates in any order, when asked for the first time and again."""
    fates = []
    texts = [f"row {number}" for number in range(40)]
    for order in (texts, texts[::-1]):
        async with playground(seed=5, answer=_first, s=Server(server_errors=0.3, garbage=0.3)) as play:
            await asyncio.gather(*(_post(play.s, _body("openai", text)) for text in order))
            await asyncio.gather(*(_post(play.s, _body("openai", text)) for text in order))
            fates.append(sorted((request.text, request.fate) for request in play.s.requests))
            assert len(play.s.counts) == 3
    assert fates[0] == fates[1]


@pytest.mark.parametrize(
    ("server", "path", "body", "headers", "text"),
    [
        (
            Server("responses"),
            "/v1/responses",
            RESPONSES,
            BEARER,
            lambda reply: reply["output"][0]["content"][0]["text"],
        ),
        (
            Server("gemini"),
            "/v1beta/models/m:generateContent",
            GEMINI,
            GEMINI_KEY,
            lambda reply: reply["candidates"][0]["content"]["parts"][0]["text"],
        ),
        (Server("ollama"), "/api/chat", OLLAMA, {}, lambda reply: reply["message"]["content"]),
        (
            Server("ollama"),
            "/v1/chat/completions",
            {**_body("openai"), "max_completion_tokens": None},
            {},
            lambda reply: reply["choices"][0]["message"]["content"],
        ),
        (
            Server(vendor="groq"),
            "/openai/v1/chat/completions",
            _body("openai"),
            BEARER,
            lambda reply: reply["choices"][0]["message"]["content"],
        ),
    ],
)
async def test_every_dialect_labels(server, path, body, headers, text):
    """A labelling request is answered in every dialect and by vendors that speak OpenAI's."""
    body = {name: value for name, value in body.items() if value is not None}
    async with playground(answer=_first, s=server) as play:
        status, reply, _ = await _post(play.s, body, path=path, headers=headers)
        assert (status, play.s.violations) == (200, [])
    assert json.loads(text(reply))["label"] == "billing"


@pytest.mark.parametrize(
    ("server", "path", "body", "status", "says"),
    [
        (Server("gemini", api_key="right"), "/v1beta/models/m:generateContent", GEMINI, 400, "API_KEY_INVALID"),
        (Server("ollama", api_key="right"), "/api/chat", OLLAMA, 401, "unauthorized"),
        (Server("responses", api_key="right"), "/v1/responses", RESPONSES, 401, "invalid_api_key"),
        (Server("gemini", models=["n"]), "/v1beta/models/m:generateContent", GEMINI, 404, "models/m is not found"),
        (Server("ollama", models=["n"]), "/api/chat", OLLAMA, 404, "model 'm' not found"),
        (Server("responses", models=["n"]), "/v1/responses", RESPONSES, 404, "model_not_found"),
        (Server(vendor="ollama-v1", models=["n"]), "/v1/chat/completions", _body("openai"), 404, "try pulling it"),
    ],
)
async def test_keys_and_models_in_every_dialect(server, path, body, status, says):
    """A wrong key and an unknown model are turned away as each vendor does, which is no violation."""
    async with playground(answer=_first, s=server) as play:
        found, reply, _ = await _post(play.s, body, path=path, headers={**BEARER, **GEMINI_KEY})
        assert (found, play.s.violations, play.s.counts) == (status, [], {"refused": 1})
    assert says in json.dumps(reply)


async def test_gemini_says_in_the_body_how_long_to_wait():
    """Beyond the quota Gemini names the delay in its error and in no header."""
    async with playground(answer=_first, s=Server("gemini", rpm=0.001)) as play:
        path = "/v1beta/models/m:generateContent"
        await _post(play.s, GEMINI, path=path, headers=GEMINI_KEY)
        status, reply, headers = await _post(play.s, GEMINI, path=path, headers=GEMINI_KEY)
    assert (status, "retry-after" in headers) == (429, False)
    assert 50_000 < float(reply["error"]["details"][0]["retryDelay"].removesuffix("s")) <= 60_000


async def test_a_busy_ollama_is_busy():
    """One request more than Ollama may answer at once meets HTTP 503."""
    async with playground(answer=_first, s=Server("ollama", hangs=1, max_concurrency=1)) as play:
        asking = asyncio.create_task(_post(play.s, OLLAMA, path="/api/chat", headers={}))
        await _until(lambda: play.s.in_flight == 1)
        status, reply, _ = await _post(play.s, OLLAMA, path="/api/chat", headers={})
    await asyncio.wait([asking])
    assert isinstance(asking.exception(), aiohttp.ClientConnectionError)
    assert (status, "at once" in reply["error"]) == (503, True)


async def test_ollama_streams_unless_told_not_to():
    """A request to Ollama that does not say stream=false gets lines of JSON, and that is noted."""
    body = {name: value for name, value in OLLAMA.items() if name != "stream"}
    async with playground(answer=_first, s=Server("ollama")) as play:
        status, raw, headers = await _post(play.s, body, path="/api/chat", headers={})
        assert [text.partition(":")[0] for text in play.s.violations] == ["stream"]
    assert (status, headers["content-type"], len(raw.splitlines())) == (200, "application/x-ndjson", 2)


@DIALECTS
async def test_a_violation_is_refused_and_noted(dialect):
    """A request against the vendor's rules is refused in its shape, and the record says why."""
    async with playground(answer=_first, s=Server(dialect)) as play:
        await _post(play.s)
        status, reply, _ = await _post(play.s, _body(dialect, nonsense=1))
        assert [request.fate for request in play.s.requests] == ["answered", "refused"]
        (violation,) = play.s.violations
    assert status == 400
    assert "nonsense" in reply["error"]["message"]
    assert violation == f"HTTP 400: {reply['error']['message']}"


async def test_a_body_that_is_no_request_is_a_violation():
    """What cannot be read as a request counts as a violation too."""
    async with playground(answer=_first, s=Server()) as play:
        await _post(play.s, b"{")
        assert len(play.s.violations) == 1


@DIALECTS
async def test_a_parameter_can_be_made_to_be_refused(dialect):
    """A server told to refuse a parameter answers requests without it, and no violation is noted."""
    async with playground(answer=_upper, s=Server(dialect, refuses=["temperature", "json_schema"])) as play:
        schema, reply, _ = await _post(play.s)
        plain = {
            name: value for name, value in _body(dialect).items() if name not in ("output_config", "response_format")
        }
        sampled, _, _ = await _post(play.s, {**plain, "temperature": 1})
        answered, _, _ = await _post(play.s, plain)
        assert (play.s.violations, play.s.counts) == ([], {"refused": 2, "answered": 1})
    assert (schema, sampled, answered) == (400, 400, 200)
    assert reply["error"]["type"] == "invalid_request_error"
