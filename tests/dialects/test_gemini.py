"""Gemini's generateContent: what is sent; how replies are read stands in recorded/gemini.json."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit._dialects.profiles import check_settings
from batchkit.errors import ConfigError
from batchkit.records import Brief, Completion, Endpoint, Failure, Question, Turn

GEMINI = DIALECTS["gemini"]
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["bug", "billing"]}, "confidence": {"type": "number"}},
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)
HOST = "https://generativelanguage.googleapis.com"


def endpoint(model="gemini-3.5-flash-lite", base_url=HOST, **settings):
    """Build an endpoint of Google's."""
    return Endpoint("gemini", model, base_url, **settings)


def encode(question, at):
    """Prepare and encode in one go."""
    return GEMINI.encode(GEMINI.prepare(question.brief, at), question, at)


@pytest.mark.parametrize("base", [HOST, f"{HOST}/", f"{HOST}/v1beta", f"{HOST}/v1beta/"])
@pytest.mark.parametrize("model", ["gemini-3.5-flash-lite", "models/gemini-3.5-flash-lite"])
def test_every_spelling_gives_one_address(base, model):
    """Version and slash of the base URL, and the prefix of the model, may be there or not."""
    assert GEMINI.url(endpoint(model, base)) == f"{HOST}/v1beta/models/gemini-3.5-flash-lite:generateContent"


def test_another_version_is_kept():
    """A base URL that names a version of its own keeps it."""
    assert GEMINI.url(endpoint("m", f"{HOST}/v1")) == f"{HOST}/v1/models/m:generateContent"


@pytest.mark.parametrize("model", ["", ".", "..", "models/", "models/..", "google/gemini-4", "a/../../b"])
def test_a_name_that_would_change_the_address_is_refused(model):
    """A model's name stays one segment of the URL, which is checked before anything is sent."""
    with pytest.raises(ConfigError, match="no model name"):
        GEMINI.url(endpoint(model))
    assert "no model name" in (check_settings(endpoint(model)) or "")


def test_a_name_is_escaped():
    """What means something in a URL is percent-encoded."""
    assert GEMINI.url(endpoint("a?b#c d")).endswith("/models/a%3Fb%23c%20d:generateContent")


def test_the_key_stands_in_a_header():
    """The key is never in the URL, and a user's own authorization takes its place."""
    assert GEMINI.headers(endpoint(key="k")) == {"Content-Type": "application/json", "x-goog-api-key": "k"}
    assert "k" not in GEMINI.headers(endpoint(key="k", headers={"Authorization": "Bearer o"})).values()
    assert "key" not in GEMINI.url(endpoint(key="secret-key"))


def test_a_question_is_written_as_gemini_wants_it():
    """System text stands apart, roles are user and model, and the schema keeps its fields' order."""
    question = Question(BRIEF, "screen frozen", (Turn("assistant", "?"), Turn("user", "a label please")))
    assert encode(question, endpoint("gemini-2.5-flash")) == {
        "systemInstruction": {"parts": [{"text": "You label tickets."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "screen frozen"}]},
            {"role": "model", "parts": [{"text": "?"}]},
            {"role": "user", "parts": [{"text": "a label please"}]},
        ],
        "generationConfig": {
            "maxOutputTokens": 64,
            "responseMimeType": "application/json",
            "responseJsonSchema": {**SCHEMA, "propertyOrdering": ["label", "confidence"]},
            "thinkingConfig": {"thinkingBudget": 0},
        },
    }


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "cap"),
    [
        ("gemini-2.0-flash", None, None, 64),
        ("gemini-2.5-flash-lite", None, {"thinkingBudget": 0}, 64),
        ("gemini-2.5-pro", None, {"thinkingBudget": 128}, 64 + 4096),
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 8192}, 64 + 4096),
        ("gemini-2.5-flash", "auto", {"thinkingBudget": -1}, 64 + 4096),
        ("gemini-3.5-flash-lite", None, {"thinkingLevel": "MINIMAL"}, 64 + 4096),
        ("gemini-3.5-flash-lite", "off", {"thinkingLevel": "MINIMAL"}, 64 + 4096),
        ("gemini-3.8-flash", None, {"thinkingLevel": "LOW"}, 64 + 4096),
        ("gemini-3.1-pro-preview", None, {"thinkingLevel": "LOW"}, 64 + 4096),
        ("gemini-4-carbon", "high", {"thinkingLevel": "HIGH"}, 64 + 4096),
        ("gemini-flash-latest", None, None, 64 + 4096),
        ("gemini-flash-latest", "off", {"thinkingLevel": "LOW"}, 64 + 4096),
    ],
)
def test_thinking_is_off_or_down_unless_asked_for(model, reasoning, thinking, cap):
    """Each family is kept from thinking in its own way, with room for thoughts where it has them all the same."""
    config = encode(Question(BRIEF, "row"), endpoint(model, reasoning=reasoning))["generationConfig"]
    assert (config.get("thinkingConfig"), config["maxOutputTokens"]) == (thinking, cap)


def test_the_users_settings_are_added():
    """A temperature is sent if given, and what extra_body has for generationConfig is added to ours and wins."""
    extra = {"generationConfig": {"topK": 1, "maxOutputTokens": 9}, "safetySettings": []}
    body = encode(Question(BRIEF, "row", room=4), endpoint(temperature=0.0, extra_body=extra))
    config = body["generationConfig"]
    assert (config["temperature"], config["topK"], config["maxOutputTokens"]) == (0.0, 1, 9)
    assert "responseJsonSchema" in config
    assert body["safetySettings"] == []


def test_encoding_leaves_what_is_shared_as_it_was():
    """A question with more room gets it in a body of its own."""
    at = endpoint("gemini-2.5-flash")
    prepared = GEMINI.prepare(BRIEF, at)
    before = copy.deepcopy(prepared)
    bodies = [GEMINI.encode(prepared, Question(BRIEF, row, room=4), at) for row in "ab"]
    assert prepared == before
    assert GEMINI.cap(prepared) == 64
    assert [GEMINI.cap(body) for body in bodies] == [256, 256]


def test_free_text_is_asked_for_plainly():
    """Without a schema and a system text nothing is said about either."""
    body = encode(Question(Brief("", max_output_tokens=5), "row"), endpoint("gemini-2.0-flash"))
    assert body == {
        "contents": [{"role": "user", "parts": [{"text": "row"}]}],
        "generationConfig": {"maxOutputTokens": 5},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def loose(**fields):
    """Draw objects that have some of ``fields``, each of the given or any other shape."""
    return st.fixed_dictionaries({}, optional={name: shape | JSON for name, shape in fields.items()}) | JSON


PART = loose(text=st.text(), thought=st.booleans(), functionCall=loose(args=JSON))
CANDIDATE = loose(content=loose(parts=st.lists(PART)), finishReason=st.sampled_from(["STOP", "SAFETY", "MAX_TOKENS"]))
USAGE = loose(promptTokenCount=st.integers(), cachedContentTokenCount=st.integers(), thoughtsTokenCount=st.integers())
BODY = loose(candidates=st.lists(CANDIDATE), usageMetadata=USAGE, promptFeedback=loose(blockReason=st.text()))


@given(BODY)
def test_decoding_never_raises(body):
    """Any JSON is a completion with sane usage, or a failure."""
    read = GEMINI.decode(body)
    assert isinstance(read, Completion | Failure)
    if isinstance(read, Completion):
        assert 0 <= read.usage.cached <= read.usage.input
        assert 0 <= read.usage.reasoning <= read.usage.output
