"""What a message says to do next."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects.errors import read_failure
from batchkit._dialects.hints import advise, key_problem
from batchkit._dialects.profiles import PROFILES
from batchkit.records import ERROR_KINDS, Endpoint, Failure, Scope


def endpoint(vendor="openai", model="gpt-6-luna", base_url=None, **settings):
    """Build an endpoint of a vendor, with a key unless said otherwise."""
    return Endpoint(vendor, model, base_url or PROFILES[vendor].base_url or "https://h/v1", **{"key": "k", **settings})


def said(status, message, at, **error):
    """Return the whole message of an HTTP error, advice included."""
    body = json.dumps({"error": {"message": message, **error}}).encode()
    return advise(read_failure(status, {}, body, 0.0), at).message


def unreached(message, at, **fields):
    """Return the whole message where no connection came about."""
    return advise(Failure("connection", message, Scope.TRANSIENT, unreached=True, **fields), at).message


OLLAMA = endpoint("ollama", "qwen3", key=None)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        (said(403, "Country, region, or territory not supported", endpoint()), "does not serve the country"),
        (said(400, "User location is not supported", endpoint("gemini")), "Google does not serve the country"),
        (said(403, "not allowed", endpoint("anthropic")), "see its rights at https://platform.claude.com"),
        (
            said(401, "no", endpoint(base_url="https://gateway.example.com")),
            "The server at gateway.example.com does not",
        ),
        (said(401, "no", endpoint("vllm", "m")), "The server at localhost:8000 does not take this key"),
        (said(401, "no", endpoint("vllm", "m", key=None)), "wants a key: set VLLM_API_KEY, or pass api_key="),
        (said(401, "no", endpoint("llama.cpp", "m", key=None)), "This server wants a key: pass api_key="),
        (said(401, "wrong API endpoint", endpoint("azure", "d")), "of one Azure resource"),
        (said(429, "limit: 0", endpoint("gemini")), "raise the limit at https://aistudio.google.com"),
        (said(402, "no", endpoint("openai-compatible", "m")), "the account there needs credit"),
        (said(429, "free-models-per-day", endpoint("openrouter", "m")), "of this day are used up"),
        (
            said(429, "x", endpoint("gemini"), details=[{"violations": [{"quotaId": "RequestsPerDay"}]}]),
            "of this day are used up",
        ),
        (said(404, "model not found", endpoint("azure", "d")), "the name of your deployment"),
        (said(404, "x is not found, model", endpoint("gemini", "x"), code="model_not_found"), "gemini-api/docs/models"),
        (said(404, "model x not found", endpoint("gemini", "x", "https://h")), "https://h/v1beta/models"),
        (said(404, "model: x", endpoint("anthropic", "x"), code="model_not_found"), "about-claude/models"),
        (said(404, "model x not found", endpoint("anthropic", "x", "https://h")), "https://h/v1/models"),
        (
            said(404, "model 'x' not found", endpoint("openai-compatible", "x", "http://localhost:11434/v1")),
            "ollama pull x",
        ),
        (said(404, "Not Found", endpoint("openai-compatible", "m", "https://h/v1/v1")), "names its version twice"),
        (said(404, "Not Found", endpoint("openai-compatible", "m", "https://h")), "https://h/v1/chat/completions"),
        (said(400, "only supported in v1/responses", endpoint(), param="model"), "Pass endpoint='responses'."),
        (said(407, "", endpoint()), "the proxy's user name"),
        (said(400, "no", endpoint(temperature=0.0), param="temperature"), "Leave temperature= out"),
        (said(400, "no", endpoint(reasoning="x"), param="reasoning.effort"), "Leave reasoning= out"),
        (said(400, "no", endpoint(extra_body={"seed": 1}), param="seed"), "Leave 'seed' out of extra_body="),
        (said(503, "Loading model", endpoint("llama.cpp", "m")), "still loading its model"),
        (said(503, "server busy", OLLAMA), "Lower max_concurrency="),
        (said(500, "model requires more system memory (9 GiB)", OLLAMA), "Take a smaller model"),
        (said(400, "the input length exceeds the context length", OLLAMA), "num_ctx"),
        (advise(Failure("timeout", "no answer"), OLLAMA).message, "raise timeout="),
        (unreached("refused", endpoint("lm-studio", "m", key=None)), "`lms server start`"),
        (unreached("refused", endpoint("vllm", "m", key=None)), "`vllm serve MODEL`"),
        (unreached("refused", endpoint("openai-compatible", "m", "http://127.0.0.1:9")), "Start the server first"),
        (unreached("refused", endpoint("openai-compatible", "m", "http://127.0.0.1:1234")), "lms server start"),
        (unreached("refused", endpoint(base_url="https://gateway.example.com")), "reachable from here"),
        (unreached("the proxy at h:1 is not reachable: refused", endpoint()), "Is HTTPS_PROXY right?"),
        (unreached("the proxy at h:1 is not reachable: refused", endpoint(base_url="http://h")), "put h into NO_PROXY"),
        (unreached("the proxy refused: HTTP 407 x", endpoint()), "user name and password into HTTPS_PROXY"),
        (unreached("not trusted: certificate has expired", endpoint(), tls=True), "out of date"),
        (unreached("not trusted: Hostname mismatch, ...", endpoint(), tls=True), "for another name"),
        (unreached("not trusted: self-signed certificate", endpoint(), tls=True), "SSL_CERT_FILE"),
        (
            unreached("[SSL: WRONG_VERSION_NUMBER] wrong version number", endpoint(), tls=True),
            "write http:// in base_url=",
        ),
    ],
)
def test_advice_fits_the_vendor_and_the_failure(message, hint):
    """What to do is said for this vendor and this address."""
    assert hint in message


@pytest.mark.parametrize(
    "message",
    [
        said(500, "oops", endpoint()),
        said(503, "overloaded", endpoint()),
        said(400, "bad", endpoint(), param="messages"),
        said(400, "no", endpoint(), param="temperature"),
        said(400, "maximum context length", endpoint()),
        advise(Failure("timeout", "no answer"), endpoint()).message,
        advise(Failure("connection", "the connection broke"), endpoint()).message,
        advise(Failure("function", "ValueError: x"), endpoint()).message,
    ],
)
def test_where_nothing_can_be_done_nothing_is_said(message):
    """A failure that passes, or is the row's own, stands as it is."""
    assert message.count(". ") == 0


def test_the_address_that_was_used_is_shown():
    """Where a request went elsewhere than usual, that address is named."""
    failure = Failure("config", "HTTP 404: Not Found", Scope.PROVIDER, status=404)
    assert "https://h/v1/responses" in advise(failure, endpoint(base_url="https://h"), "https://h/v1/responses").message


@given(
    st.sampled_from(ERROR_KINDS),
    st.sampled_from(sorted(PROFILES)),
    st.sampled_from([None, 400, 401, 403, 404, 407, 429, 503]),
    st.sampled_from(["", "Loading model", "model x not found", "PerDay", "limit: 0", "location is not supported"]),
    st.booleans(),
    st.booleans(),
)
def test_advice_is_short_and_given_once(kind, vendor, status, message, unreachable, tls):
    """Whatever failed wherever, the advice is a sentence or two, keeps what was said, and is not repeated."""
    at = endpoint(vendor, "m")
    failure = Failure(kind, message, status=status, unreached=unreachable, tls=tls)
    advised = advise(failure, at)
    assert advised.message.startswith(message)
    assert len(advised.message) - len(message) < 400
    assert advise(advised, at) == advised


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("'sk-abc'", "quotes"),
        ("“sk-abc”", "quotes"),
        ("sk-abc'", "quotes"),
        ("Bearer sk-abc", "'Bearer'"),
        ("OPENAI_API_KEY=sk-abc", "variable's name"),
        ("export OPENAI_API_KEY=sk-abc", "variable's name"),
        ("sk-abc def", "white space or a line break in it"),
        ("sk-abc\n", "at its end or beginning"),
        ("sk-abc–def", "a character that no key has"),
        ("sk-abc\x00", "a character that no key has"),
        ("<your key>", "placeholder"),
        ("your-api-key", "placeholder"),
        ("YOUR_API_KEY", "placeholder"),
        ("sk-...", "placeholder"),
        ("sk-xxxx", "placeholder"),
    ],
)
def test_a_key_that_cannot_work_is_explained(key, why):
    """What is wrong is said before anything is sent, without the key."""
    problem = key_problem(key)
    assert problem is not None
    assert why in problem
    assert "abc" not in problem


@pytest.mark.parametrize(
    ("key", "vendor", "owner"),
    [
        ("sk-ant-api03-abc", "openai", "Anthropic"),
        ("sk-proj-abc", "anthropic", "OpenAI"),
        ("sk-or-v1-abc", "openai", "OpenRouter"),
        ("gsk_abc", "openai", "Groq"),
        ("AIzaabc", "anthropic", "Google"),
    ],
)
def test_another_vendors_key_is_recognised(key, vendor, owner):
    """A key that begins like another vendor's is told, unless nobody says whose it should be."""
    assert f"one of {owner}" in (key_problem(key, vendor) or "")
    assert key_problem(key) is None
    assert key_problem(key, "vllm") is None


@pytest.mark.parametrize(
    ("key", "vendor"),
    [
        ("sk-proj-abc", "openai"),
        ("sk-abc", "openai"),
        ("sk-abc", "deepseek"),
        ("sk-ant-api03-abc", "anthropic"),
        ("AIzaabc", "gemini"),
        ("0123456789abcdef", "azure"),
        ("any=thing", None),
    ],
)
def test_a_key_that_may_work_is_let_through(key, vendor):
    """Nothing is said of a key that looks right."""
    assert key_problem(key, vendor) is None
