"""Every failure of the catalogue arrives over HTTP as it is written, when the script names it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import pytest

from batchkit._playground import Playground, RunningServer, Server, playground
from batchkit._playground.failures import (
    DATE,
    FAILURES,
    Inside,
    Raw,
    Silence,
    Twist,
    dialect_of,
    find_failure,
)
from batchkit._playground.faults import draw
from batchkit._playground.judge import count_tokens
from batchkit._playground.wires import VENDORS, WIRES, OpenAIWire, Refusal, Said, Wire
from batchkit.errors import ConfigError

CHAT = {"model": "m", "messages": [{"role": "user", "content": "ROW"}]}
ASK: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/chat/completions", CHAT),
    "responses": ("/v1/responses", {"model": "m", "input": "ROW"}),
    "anthropic": ("/v1/messages", {**CHAT, "max_tokens": 500}),
    "gemini": ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "ROW"}]}]}),
    "ollama": ("/api/chat", {**CHAT, "stream": False}),
}
KEYS = {
    "authorization": "Bearer sk-secret",
    "x-goog-api-key": "sk-secret",
    "anthropic-version": "2023-06-01",
}
SPEAKERS = sorted({speaker for row in FAILURES.values() for speaker in row})
CASES = [(name, speaker) for name, row in FAILURES.items() for speaker in row]
EVERYWHERE = """
wrong_key key_quoted forbidden billing rate_limit rate_limit_seconds rate_limit_ms rate_limit_date
rate_limit_long overloaded overloaded_seconds server_error bad_gateway gateway_timeout request_timeout conflict
should_retry should_not_retry cloudflare empty_error json_text json_list detail_text message_only error_text
foreign_error drop hang context_length invalid_request unknown_model wrong_path too_large unprocessable error_in_200
garbage empty_body cut_json wrong_shape truncated truncated_empty empty thinking_only tool_call two_objects fenced
think_text prose wrong_types wrong_label
"""


def _first(text: str, labels: Any) -> Any:
    return "billing"


def _server(speaker: str, **settings: Any) -> Server:
    return Server(dialect_of(speaker), vendor=speaker if speaker in VENDORS else None, **settings)


def _wire(speaker: str) -> Wire:
    return OpenAIWire(speaker) if speaker in VENDORS else WIRES[speaker]


@pytest.fixture(scope="module")
def play() -> Iterator[Playground]:
    """One server for each dialect and vendor, which fails as the row's text says."""
    servers = {speaker: _server(speaker, script=lambda text, nth: text) for speaker in SPEAKERS}
    with playground(answer=_first, **servers) as running:
        yield running


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def _post(server: RunningServer, text: str) -> tuple[int, bytes, Any]:
    path, body = ASK[server.server.dialect]
    sent = json.dumps(body).replace("ROW", text).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + path, data=io.BytesIO(sent), headers=KEYS) as answer,
    ):
        return answer.status, await answer.read(), answer.headers


def _usual(server: RunningServer, text: str) -> Said:
    said = "billing"
    return Said(said, None, False, count_tokens(said), draw(server.server, 0, server.name, text, 1).serial)


@pytest.mark.parametrize(("name", "speaker"), CASES)
@pytest.mark.asyncio
async def test_every_failure_arrives_as_written(play, name, speaker):
    """Status, headers and body of a failure are those of the catalogue, in the vendor's dress."""
    server, wire, failure = play[speaker], _wire(speaker), FAILURES[name][speaker]
    if isinstance(failure, Silence):
        await _nothing_arrives(server, name)
        return
    status, body, headers = await _post(server, name)
    request_id = headers.get(wire.request_id_header or "", "")
    if isinstance(failure, Refusal):
        expected = replace(failure, message=failure.message.replace("{key}", "sk-secret"))
        written = wire.error(expected, request_id)
        assert status == failure.status
        assert json.loads(body) == json.loads(json.dumps(written).replace("req_1", request_id or "req_1"))
        _same_headers(failure, headers)
    elif isinstance(failure, Raw):
        assert (status, body, headers["content-type"]) == (failure.status, failure.body, failure.content_type)
        assert {header: headers[header] for header in failure.headers} == failure.headers
    elif isinstance(failure, Inside):
        assert status == 200
        assert _without_id(json.loads(body)) == _without_id(wire.error(failure.refusal, ""))
    else:
        assert isinstance(failure, Twist)
        assert status == 200
        _, question = ASK[server.server.dialect]
        asked = wire.read(json.loads(json.dumps(question).replace("ROW", name)), KEYS, "m")
        said = failure.change(_usual(server, name))
        said = replace(said, output_tokens=count_tokens(said.thought or "", said.refusal or said.text))
        assert json.loads(body) == wire.reply(asked, said)
        assert json.loads(body) != wire.reply(asked, _usual(server, name))
    assert server.counts[name] == 1
    assert server.violations == []


async def _nothing_arrives(server: RunningServer, name: str) -> None:
    if name == "drop":
        with pytest.raises(aiohttp.ClientConnectionError):
            await _post(server, name)
    else:
        asking = asyncio.create_task(_post(server, name))
        await _until(lambda: server.in_flight == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await _until(lambda: server.in_flight == 0)
    assert server.counts[name] == 1


def _without_id(body: Any) -> Any:
    return {key: value for key, value in body.items() if key != "request_id"}


def _same_headers(failure: Refusal, headers: Any) -> None:
    for header, value in failure.headers.items():
        if value == DATE:
            assert parsedate_to_datetime(headers[header]) is not None
        else:
            assert headers[header] == value


@pytest.mark.parametrize("name", EVERYWHERE.split())
def test_common_failures_exist_everywhere(name):
    """What can go wrong with any vendor is in the catalogue for every dialect."""
    assert set(WIRES) <= set(FAILURES[name])


def test_speakers_are_dialects_and_vendors():
    """Every key of a row is a dialect or a vendor that a server can be."""
    assert set(SPEAKERS) <= {*WIRES, *VENDORS}
    assert [dialect_of(speaker) for speaker in ("gemini", "groq", "llama.cpp")] == ["gemini", "openai", "openai"]


def test_a_vendor_falls_back_on_its_dialect():
    """Where a vendor has no words of its own, those of the dialect are used."""
    assert find_failure("billing", "openai", "deepseek") is FAILURES["billing"]["deepseek"]
    assert find_failure("conflict", "openai", "deepseek") is FAILURES["conflict"]["openai"]
    with pytest.raises(KeyError):
        find_failure("pause_turn", "openai", "deepseek")


def test_errors_are_dressed_by_vendor():
    """The same error has another shape with each vendor."""
    refusal = Refusal(402, "no money", "c", "p", details={"x": 1})
    assert OpenAIWire("openrouter").error(refusal, "") == {
        "error": {"code": 402, "message": "no money", "metadata": {"x": 1}}
    }
    assert OpenAIWire("azure").error(refusal, "")["error"]["innererror"] == {"x": 1}
    assert OpenAIWire("mistral").error(refusal, "")["message"] == "no money"
    assert OpenAIWire("mistral").error(Refusal(401, "no"), "") == {"detail": "Unauthorized"}
    assert OpenAIWire("vllm").error(Refusal(400, "no"), "")["error"]["code"] == 400
    assert OpenAIWire("llama.cpp").error(Refusal(503, "Loading model"), "")["error"]["code"] == 503
    assert OpenAIWire("ollama-v1").error(Refusal(404, "no"), "")["error"]["type"] == "not_found_error"
    assert WIRES["gemini"].error(refusal, "") == {
        "error": {"code": 402, "message": "no money", "status": "UNKNOWN", "details": {"x": 1}}
    }
    assert WIRES["ollama"].error(refusal, "") == {"error": "no money"}


@pytest.mark.asyncio
async def test_a_list_says_what_happens_in_order():
    """The n-th request to pass gets the n-th name, and those after the last the usual answer."""
    script = ["rate_limit", "ok", "cloudflare"]
    async with playground(answer=_first, s=Server(script=script)) as play:
        statuses = [(await _post(play.s, text))[0] for text in ("a", "a", "b", "a")]
        assert [request.fate for request in play.s.requests] == ["rate_limit", "answered", "cloudflare", "answered"]
    assert statuses == [429, 200, 520, 200]


@pytest.mark.asyncio
async def test_a_function_decides_by_row_and_count():
    """A function is told the row's text and how often it was asked."""

    def twice(text: str, nth: int) -> str:
        return "overloaded" if text == "bad" and nth <= 2 else "ok"

    async with playground(answer=_first, s=Server("anthropic", script=twice)) as play:
        statuses = [(await _post(play.s, text))[0] for text in ("bad", "good", "bad", "bad")]
    assert statuses == [529, 200, 529, 200]


@pytest.mark.asyncio
async def test_a_script_leaves_drawn_faults_alone():
    """Where the script says ok, faults happen as they would without it."""
    async with playground(answer=_first, s=Server(server_errors=1, script=["conflict"])) as play:
        statuses = [(await _post(play.s, "a"))[0] for _ in range(2)]
    assert statuses == [409, 500]


@pytest.mark.asyncio
async def test_a_request_that_is_refused_uses_up_no_step():
    """A list counts the requests that reach the model, not those turned away before."""
    async with playground(answer=_first, s=Server(script=["conflict"])) as play:
        async with aiohttp.ClientSession() as session:
            await session.post(play.s.url + "/v1/chat/completions", data=b"{}")
        status, _, _ = await _post(play.s, "a")
    assert status == 409


@pytest.mark.parametrize("step", ["nonsense", "refusal_", "pause_turn", None])
@pytest.mark.asyncio
async def test_a_function_that_names_no_failure_is_a_server_error(step):
    """A function that returns what is no failure of the dialect makes an HTTP 500 that says so."""
    async with playground(answer=_first, s=Server(script=lambda text, nth: step)) as play:
        status, body, _ = await _post(play.s, "a")
        assert play.s.counts == {"answer_raised": 1}
    assert (status, repr(step).encode() in body) == (500, True)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"script": ["rate_limits"]}, "'rate_limits' is no failure. .*'rate_limit'"),
        ({"script": ["daily_quota"]}, "failure of 'gemini' only"),
        ({"script": "rate_limit"}, "a list of names"),
        ({"script": 5}, "a list of names"),
        ({"script": [7]}, "7 is no failure"),
        ({"refuses": "temperature"}, "a list of parameters"),
        ({"refuses": [1]}, "a list of parameters"),
        ({"vendor": "groqq"}, "no such vendor. .*'groq'"),
        ({"vendor": ["groq"]}, "no such vendor"),
        ({"dialect": "gemini", "vendor": "groq"}, "a vendor is for the dialect 'openai'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, says):
    """A script, a vendor or a refused parameter that cannot be is a ConfigError when the server is described."""
    with pytest.raises(ConfigError, match=says):
        Server(**settings)


@pytest.mark.parametrize(("name", "speaker"), [case for case in CASES if case[1] in VENDORS])
def test_a_vendors_failure_can_be_scripted(name, speaker):
    """What only one vendor says can be put into the script of that vendor's server."""
    assert _server(speaker, script=[name]).vendor == speaker
