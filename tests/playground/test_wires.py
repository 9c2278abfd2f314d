"""The playground understands what the vendors' clients send, and refuses what the vendors would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.judge import Asked
from batchkit._playground.wires import WIRES, Refusal, Said

SCHEMA = {"type": "object", "properties": {"label": {"type": "string", "enum": ["a", "b"]}}}
VERSION = {"anthropic-version": "2023-06-01"}
SAID = Said('{"label":"a"}', {"label": "a"}, False, 4, "beef")
CUT = Said('{"lab', None, True, 2, "beef")

OPENAI = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "- a\n- b"},
        {"role": "user", "content": "the row"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "that is no label"},
    ],
    "max_completion_tokens": 64,
    "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
}
ANTHROPIC = {
    "model": "m",
    "max_tokens": 64,
    "system": [{"type": "text", "text": "- a\n- b"}],
    "messages": OPENAI["messages"][1:],
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _without(body: dict, *names: str) -> dict:
    return {name: value for name, value in body.items() if name not in names}


@pytest.mark.parametrize(("dialect", "body"), [("openai", OPENAI), ("anthropic", ANTHROPIC)])
def test_a_request_is_understood(dialect, body):
    """The row is the first user message, and prompt, schema and cap are found in both formats."""
    asked = WIRES[dialect].read(body, VERSION)
    assert isinstance(asked, Asked)
    assert asked == Asked("m", "the row", "- a\n- b", SCHEMA, None, 64, asked.input_tokens)
    assert asked.labels == ("a", "b")
    assert asked.input_tokens == 8


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            "openai",
            {
                **_without(OPENAI, "response_format"),
                "tools": [{"type": "function", "function": {"name": "answer", "parameters": SCHEMA}}],
                "tool_choice": {"type": "function", "function": {"name": "answer"}},
            },
        ),
        (
            "anthropic",
            {
                **_without(ANTHROPIC, "output_config"),
                "tools": [{"name": "answer", "input_schema": SCHEMA}],
                "tool_choice": {"type": "tool", "name": "answer"},
            },
        ),
        (
            "anthropic",
            {
                **_without(ANTHROPIC, "output_config"),
                "tools": [{"name": "answer", "input_schema": SCHEMA}],
                "tool_choice": {"type": "any"},
            },
        ),
    ],
)
def test_a_forced_tool_is_a_schema(dialect, body):
    """The parameters of a tool that must be called are the schema of the answer, which is its arguments."""
    wire = WIRES[dialect]
    asked = wire.read(body, VERSION)
    assert (asked.tool, asked.labels) == ("answer", ("a", "b"))
    reply = wire.reply(asked, SAID)
    if dialect == "openai":
        assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == SAID.text
    else:
        assert (reply["content"][0]["input"], reply["stop_reason"]) == ({"label": "a"}, "tool_use")


def test_content_may_be_parts():
    """Text parts of a message are read as one text, and other parts are passed over."""
    parts = [{"type": "text", "text": "the "}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "row"}]
    body = {"model": "m", "messages": [{"role": "user", "content": parts}]}
    assert WIRES["openai"].read(body, {}).text == "the row"


@pytest.mark.parametrize(
    ("dialect", "body", "headers", "says"),
    [
        ("openai", None, {}, "could not parse"),
        ("openai", [], {}, "could not parse"),
        ("openai", _without(OPENAI, "model"), {}, "'model'"),
        ("openai", _without(OPENAI, "messages"), {}, "'messages'"),
        ("openai", {**OPENAI, "messages": []}, {}, "'messages'"),
        ("openai", {**OPENAI, "messages": ["hello"]}, {}, "role and content"),
        ("openai", {**OPENAI, "messages": [{"role": "user"}]}, {}, "role and content"),
        ("openai", {**OPENAI, "messages": OPENAI["messages"][:1]}, {}, "of the user"),
        ("anthropic", ANTHROPIC, {}, "anthropic-version"),
        ("anthropic", None, VERSION, "could not parse"),
        ("anthropic", _without(ANTHROPIC, "max_tokens"), VERSION, "max_tokens: Field required"),
        ("anthropic", _without(ANTHROPIC, "messages"), VERSION, "messages: Field required"),
        ("anthropic", {**ANTHROPIC, "messages": OPENAI["messages"]}, VERSION, "the first of them of the user"),
    ],
)
def test_what_a_vendor_requires_is_required(dialect, body, headers, says):
    """A request that the vendor would call invalid is refused with HTTP 400 and the reason."""
    refusal = WIRES[dialect].read(body, headers)
    assert isinstance(refusal, Refusal)
    assert refusal.status == 400
    assert says in refusal.message


@given(
    st.sampled_from(["openai", "anthropic"]),
    json_values,
    st.dictionaries(st.sampled_from(list(ANTHROPIC)), json_values),
)
def test_no_body_is_a_surprise(dialect, body, changes):
    """Any JSON at all is either understood or refused."""
    valid = OPENAI if dialect == "openai" else ANTHROPIC
    for candidate in (body, {**valid, **changes}):
        assert isinstance(WIRES[dialect].read(candidate, VERSION), Asked | Refusal)


@pytest.mark.parametrize(("said", "finish"), [(SAID, "stop"), (CUT, "length")])
def test_openai_replies(said, finish):
    """A chat completion holds the text, why it ended, and the tokens used."""
    reply = WIRES["openai"].reply(Asked("m", "row", input_tokens=9), said)
    choice = reply["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (said.text, finish)
    assert reply["usage"]["total_tokens"] == 9 + said.output_tokens


@pytest.mark.parametrize(("said", "reason"), [(SAID, "end_turn"), (CUT, "max_tokens")])
def test_anthropic_replies(said, reason):
    """A message holds the text, why it ended, and the tokens used."""
    reply = WIRES["anthropic"].reply(Asked("m", "row", input_tokens=9), said)
    assert (reply["content"][0]["text"], reply["stop_reason"]) == (said.text, reason)
    assert (reply["usage"]["input_tokens"], reply["usage"]["output_tokens"]) == (9, said.output_tokens)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
    ],
)
def test_anthropic_errors_have_their_type(status, kind):
    """Each status comes with the type that Anthropic gives it."""
    assert WIRES["anthropic"].error(Refusal(status, "no"), "req_1") == {
        "type": "error",
        "error": {"type": kind, "message": "no"},
        "request_id": "req_1",
    }


def test_openai_errors_have_four_keys():
    """An OpenAI error says message, type, parameter and code."""
    error = WIRES["openai"].error(Refusal(401, "no", "invalid_api_key"), "req_1")["error"]
    assert error == {"message": "no", "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}


@pytest.mark.parametrize(
    ("dialect", "headers", "key"),
    [
        ("openai", {"authorization": "Bearer k"}, "k"),
        ("openai", {"authorization": "bearer k"}, "k"),
        ("openai", {"authorization": "Basic k"}, None),
        ("openai", {"x-api-key": "k"}, None),
        ("anthropic", {"x-api-key": "k"}, "k"),
        ("anthropic", {"authorization": "Bearer k"}, "k"),
        ("anthropic", {}, None),
    ],
)
def test_the_key_is_found_where_the_vendor_looks(dialect, headers, key):
    """A key counts only in the header in which the vendor expects it."""
    assert WIRES[dialect].key(headers) == key
