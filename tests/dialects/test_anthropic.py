"""Anthropic's messages: what is sent, and how any reply is read."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit.records import (
    Brief,
    Completion,
    Endpoint,
    Failure,
    Finish,
    Question,
    Scope,
    Structured,
    Text,
    Turn,
    Usage,
)

ANTHROPIC = DIALECTS["anthropic"]
LABEL = {"type": "string", "enum": ["bug", "billing"]}
SCHEMA = {
    "type": "object",
    "properties": {"label": LABEL, "confidence": {"type": "number", "minimum": 0, "maximum": 1}},
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
SENT_SCHEMA = {**SCHEMA, "properties": {"label": LABEL, "confidence": {"type": "number"}}}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)


def endpoint(model="claude-haiku-5-5", base_url="https://api.anthropic.com", **settings):
    """Build an endpoint of Anthropic's."""
    return Endpoint("anthropic", model, base_url, **settings)


def encode(question, at):
    """Prepare and encode in one go."""
    return ANTHROPIC.encode(ANTHROPIC.prepare(question.brief, at), question, at)


def reply(*blocks, reason="end_turn", **rest):
    """Build the body of a reply."""
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": reason, **rest}


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://h", "https://h/v1/messages"),
        ("https://h/v1/", "https://h/v1/messages"),
        ("https://h/v1/account/anthropic", "https://h/v1/account/anthropic/v1/messages"),
    ],
)
def test_questions_are_posted_to_messages(base_url, address):
    """The version is added where the base URL does not end with it."""
    assert ANTHROPIC.url(endpoint(base_url=base_url)) == address


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ({"key": "k"}, {"anthropic-version": "2023-06-01", "x-api-key": "k"}),
        ({}, {"anthropic-version": "2023-06-01"}),
        ({"key": "k", "headers": {"X-Api-Key": "own"}}, {"anthropic-version": "2023-06-01", "X-Api-Key": "own"}),
        (
            {"key": "k", "headers": {"Authorization": "Bearer own", "Anthropic-Version": "2026-10-21"}},
            {"Authorization": "Bearer own", "Anthropic-Version": "2026-10-21"},
        ),
    ],
)
def test_there_is_one_way_to_authenticate(settings, headers):
    """The key and the version are sent unless the user's headers say otherwise."""
    assert ANTHROPIC.headers(endpoint(**settings)) == {"Content-Type": "application/json", **headers}


def test_a_question_is_written_as_anthropic_wants_it():
    """The system text stands apart, thinking is off, and the schema has no bounds."""
    question = Question(BRIEF, "screen frozen", (Turn("assistant", "?"), Turn("user", "a label please")))
    assert encode(question, endpoint()) == {
        "model": "claude-haiku-5-5",
        "max_tokens": 64,
        "system": [{"type": "text", "text": "You label tickets."}],
        "messages": [
            {"role": "user", "content": "screen frozen"},
            {"role": "assistant", "content": "?"},
            {"role": "user", "content": "a label please"},
        ],
        "thinking": {"type": "disabled"},
        "output_config": {"format": {"type": "json_schema", "schema": SENT_SCHEMA}},
    }


def test_the_brief_is_not_changed():
    """Bounds are dropped from a copy of the schema, also inside lists, and never from a field of that name."""
    inner = {"type": "object", "properties": {"minimum": {"type": "integer", "minimum": 1}}}
    brief = Brief("", schema={"type": "array", "items": inner})
    before = copy.deepcopy(brief.schema)
    sent = ANTHROPIC.prepare(brief, endpoint())["output_config"]["format"]["schema"]
    assert brief.schema == before
    closed = {"type": "object", "properties": {"minimum": {"type": "integer"}}, "additionalProperties": False}
    assert sent == {"type": "array", "items": closed}


def test_an_older_model_answers_through_a_tool():
    """Where a schema cannot be asked for, a tool with that input is forced."""
    body = encode(Question(BRIEF, "row"), endpoint("claude-3-5-haiku-20241022"))
    assert body["tools"] == [{"name": "answer", "description": "Give the answer.", "input_schema": SCHEMA}]
    assert body["tool_choice"] == {"type": "tool", "name": "answer", "disable_parallel_tool_use": True}
    assert "output_config" not in body
    assert "thinking" not in body


@pytest.mark.parametrize(
    ("model", "reasoning", "thinking", "effort", "cap"),
    [
        ("claude-haiku-5-5", None, "disabled", None, 64),
        ("claude-haiku-5-5", "off", "disabled", None, 64),
        ("claude-haiku-5-5", "high", "adaptive", "high", 64 + 4096),
        ("claude-sonnet-5-5", None, "between_tools", None, 64),
        ("claude-opus-5-5", None, None, "low", 64 + 4096),
        ("claude-opus-5-5", "off", None, "low", 64 + 4096),
        ("claude-haiku-4-5", None, None, None, 64),
        ("claude-9", None, None, None, 64 + 4096),
        ("claude-9", "off", "disabled", None, 64),
    ],
)
def test_thinking_is_off_or_down_unless_asked_for(model, reasoning, thinking, effort, cap):
    """Each model is kept from thinking in its own way, with room under the cap where it thinks all the same."""
    body = encode(Question(BRIEF, "row"), endpoint(model, reasoning=reasoning))
    assert body.get("thinking", {}).get("type") == thinking
    assert body["output_config"].get("effort") == effort
    assert body["max_tokens"] == cap


@pytest.mark.parametrize(
    ("room", "of_user", "cap"), [(1, None, 64 + 4096), (1, 30, 30), (4, None, 4 * (64 + 4096)), (4, 30, 120)]
)
def test_a_question_may_have_several_times_the_room(room, of_user, cap):
    """The user's cap comes before the brief's, and either grows with the question's room."""
    question = Question(BRIEF, "row", room=room)
    assert encode(question, endpoint("claude-fable-5", max_output_tokens=of_user))["max_tokens"] == cap


@pytest.mark.parametrize(("system", "cached"), [("x" * 2047, False), ("x" * 2048, True), ("汉" * 683, True)])
def test_only_a_long_system_text_is_cached(system, cached):
    """Caching is asked for where a model could do it, at four bytes a token."""
    (block,) = ANTHROPIC.prepare(Brief(system), endpoint())["system"]
    assert block.get("cache_control") == ({"type": "ephemeral"} if cached else None)


def test_what_is_empty_is_left_out():
    """No system text, no schema and no temperature means no such fields, and empty turns are dropped."""
    question = Question(Brief("", max_output_tokens=5), "row", (Turn("assistant", " "), Turn("user", "again")))
    assert encode(question, endpoint("claude-haiku-4-5")) == {
        "model": "claude-haiku-4-5",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "row"}, {"role": "user", "content": "again"}],
    }


def test_the_users_settings_are_sent():
    """A temperature is sent if given, and extra_body wins over everything."""
    at = endpoint("claude-haiku-4-5", temperature=0.0, extra_body={"max_tokens": 7, "metadata": {"user_id": "u"}})
    body = encode(Question(BRIEF, "row", room=4), at)
    assert (body["temperature"], body["max_tokens"], body["metadata"]) == (0.0, 7, {"user_id": "u"})


def test_encoding_leaves_what_is_shared_as_it_was():
    """The prepared part is the same after any number of questions, and its schema is not copied."""
    at = endpoint()
    prepared = ANTHROPIC.prepare(BRIEF, at)
    before = copy.deepcopy(prepared)
    bodies = [ANTHROPIC.encode(prepared, Question(BRIEF, row, room=2), at) for row in "ab"]
    assert prepared == before
    assert [body["messages"][0]["content"] for body in bodies] == ["a", "b"]
    assert bodies[0]["output_config"] is bodies[1]["output_config"]


@pytest.mark.parametrize(
    ("blocks", "read"),
    [
        ([{"type": "text", "text": "bug"}], Text("bug")),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "bug"}], Text("bug")),
        ([{"type": "redacted_thinking", "data": "x"}], Text("")),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, 3, {"type": "text"}], Text("ab")),
        (
            [{"type": "text", "text": "Sure."}, {"type": "tool_use", "input": {"label": "bug"}}],
            Structured({"label": "bug"}),
        ),
        ([], Text("")),
    ],
)
def test_a_reply_is_read_past_its_thinking(blocks, read):
    """Text blocks are joined, a tool's input is a value, thinking is no part of the answer."""
    assert ANTHROPIC.decode(reply(*blocks)) == Completion(read)


def test_content_as_plain_text_is_read():
    """A gateway that gives text instead of blocks is understood."""
    assert ANTHROPIC.decode({"content": "bug"}) == Completion(Text("bug"))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("tool_use", Finish.STOP),
        ("something new", Finish.STOP),
        (None, Finish.STOP),
        ([], Finish.STOP),
        ("max_tokens", Finish.TRUNCATED),
        ("model_context_window_exceeded", Finish.TRUNCATED),
        ("refusal", Finish.REFUSED),
    ],
)
def test_the_end_of_a_reply_is_told_in_one_vocabulary(reason, finish):
    """Anthropic's words for how a reply ended become ours, with usage kept."""
    body = reply({"type": "text", "text": "x"}, reason=reason, usage={"input_tokens": 6, "output_tokens": 2})
    assert ANTHROPIC.decode(body) == Completion(Text("x"), Usage(6, 2), finish)


def test_usage_and_model_are_read():
    """Tokens written to and read from the cache are input too."""
    usage = {
        "input_tokens": 60,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 1000,
        "output_tokens": 30,
        "output_tokens_details": {"thinking_tokens": 21},
    }
    completion = ANTHROPIC.decode(reply({"type": "text", "text": "x"}, usage=usage, model="claude-haiku-5-5"))
    assert completion == Completion(Text("x"), Usage(1160, 30, 1000, 21), model="claude-haiku-5-5")


@pytest.mark.parametrize("body", [None, "text", [], {}, {"content": None}, {"content": {"type": "text"}}])
def test_what_is_no_reply_may_be_asked_again(body):
    """A 200 of a foreign shape is a passing failure of the server."""
    failure = ANTHROPIC.decode(body)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.scope) == ("server", Scope.TRANSIENT)


def test_an_error_inside_a_200_is_read():
    """An error event in place of a message is a failure."""
    failure = ANTHROPIC.decode({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert isinstance(failure, Failure)
    assert failure.overloaded


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def loose(**fields):
    """Draw objects that have some of ``fields``, each of the given or any other shape."""
    return st.fixed_dictionaries({}, optional={name: shape | JSON for name, shape in fields.items()}) | JSON


BLOCK = loose(type=st.sampled_from(["text", "tool_use", "thinking"]), text=st.text(), input=JSON)
USAGE = loose(input_tokens=st.integers(), cache_read_input_tokens=st.integers(), output_tokens_details=JSON)
BODY = loose(content=st.lists(BLOCK), usage=USAGE, stop_reason=st.text(), model=JSON, type=JSON, error=JSON)


@given(BODY)
def test_decoding_never_raises(body):
    """Any JSON is a completion with sane usage, or a failure."""
    read = ANTHROPIC.decode(body)
    assert isinstance(read, Completion | Failure)
    if isinstance(read, Completion):
        assert 0 <= read.usage.cached <= read.usage.input
        assert 0 <= read.usage.reasoning <= read.usage.output
