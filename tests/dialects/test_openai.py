"""OpenAI's chat completions: what is sent, and how any reply is read."""

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

OPENAI = DIALECTS["openai"]
SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["bug", "billing"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)


def endpoint(model="gpt-6-luna", vendor="openai", base_url="https://api.openai.com/v1", **settings):
    """Build an endpoint of OpenAI's."""
    return Endpoint(vendor, model, base_url, **settings)


def encode(question, at):
    """Prepare and encode in one go."""
    return OPENAI.encode(OPENAI.prepare(question.brief, at), question, at)


def choice(message, reason="stop", **rest):
    """Build the body of a reply."""
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], **rest}


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://h", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai/chat/completions"),
        ("https://h/api/paas/v4", "https://h/api/paas/v4/chat/completions"),
    ],
)
def test_questions_are_posted_to_chat_completions(base_url, address):
    """The version is added unless the base URL has one of its own."""
    assert OPENAI.url(endpoint(base_url=base_url)) == address


def test_the_key_is_a_bearer_token_that_a_header_can_replace():
    """The key is sent as a bearer token, not at all where there is none, and the user's header wins."""
    assert OPENAI.headers(endpoint(key="k"))["Authorization"] == "Bearer k"
    assert OPENAI.headers(endpoint()) == {"Content-Type": "application/json"}
    assert OPENAI.headers(endpoint(key="k", headers={"authorization": "own"})) == {
        "Content-Type": "application/json",
        "authorization": "own",
    }


def test_a_question_is_written_as_openai_wants_it():
    """System text, row and turns are messages, and the schema is asked for strictly."""
    question = Question(BRIEF, "screen frozen", (Turn("assistant", "?"), Turn("user", "a label please")))
    assert encode(question, endpoint()) == {
        "model": "gpt-6-luna",
        "messages": [
            {"role": "system", "content": "You label tickets."},
            {"role": "user", "content": "screen frozen"},
            {"role": "assistant", "content": "?"},
            {"role": "user", "content": "a label please"},
        ],
        "max_completion_tokens": 64,
        "reasoning_effort": "none",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
    }


def test_a_compatible_server_gets_only_what_all_understand():
    """Other vendors get max_tokens and no reasoning effort."""
    at = endpoint("gpt-5", vendor="openai-compatible", base_url="http://localhost:8000")
    assert encode(Question(Brief("", max_output_tokens=10), "row"), at) == {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "row"}],
        "max_tokens": 10,
    }


@pytest.mark.parametrize(
    ("model", "reasoning", "effort", "cap"),
    [
        ("gpt-6-luna", None, "none", 64),
        ("gpt-6-luna", "off", "none", 64),
        ("gpt-6-luna", "low", "low", 64 + 4096),
        ("gpt-5", None, "minimal", 64 + 4096),
        ("gpt-5", "off", "minimal", 64 + 4096),
        ("gpt-4o", None, None, 64),
        ("gpt-4o", "off", None, 64),
        ("gpt-9", None, None, 64 + 4096),
        ("gpt-9", "off", "none", 64),
    ],
)
def test_reasoning_is_off_or_down_unless_asked_for(model, reasoning, effort, cap):
    """The effort is the user's or the lowest the model knows, with room to think where it still does."""
    body = encode(Question(BRIEF, "row"), endpoint(model, reasoning=reasoning))
    assert (body.get("reasoning_effort"), body["max_completion_tokens"]) == (effort, cap)


@pytest.mark.parametrize(
    ("room", "of_user", "cap"),
    [(1, None, 64 + 4096), (1, 30, 30), (4, None, 4 * (64 + 4096)), (4, 30, 120)],
)
def test_a_question_may_have_several_times_the_room(room, of_user, cap):
    """The user's cap comes before the brief's, and either grows with the question's room."""
    question = Question(BRIEF, "row", room=room)
    assert encode(question, endpoint("gpt-5", max_output_tokens=of_user))["max_completion_tokens"] == cap


def test_a_temperature_is_sent_only_if_given():
    """Nothing is said about temperature unless the user does, and zero is a temperature."""
    assert "temperature" not in encode(Question(BRIEF, "row"), endpoint())
    assert encode(Question(BRIEF, "row"), endpoint(temperature=0.0))["temperature"] == 0.0


def test_extra_body_wins():
    """What the user adds to the body replaces what we would send."""
    extra = {"reasoning_effort": "high", "seed": 7, "model": "other"}
    body = encode(Question(BRIEF, "row"), endpoint(extra_body=extra))
    assert (body["reasoning_effort"], body["seed"], body["model"]) == ("high", 7, "other")


@pytest.mark.parametrize("room", [1, 4])
def test_a_cap_in_extra_body_is_the_only_one(room):
    """A server that wants the other field for the cap never sees both."""
    at = endpoint(vendor="openai-compatible", extra_body={"max_completion_tokens": 9})
    body = encode(Question(BRIEF, "row", room=room), at)
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


def test_encoding_leaves_what_is_shared_as_it_was():
    """The prepared part is the same after any number of questions, and its schema is not copied."""
    at = endpoint()
    prepared = OPENAI.prepare(BRIEF, at)
    before = copy.deepcopy(prepared)
    bodies = [OPENAI.encode(prepared, Question(BRIEF, row, room=2), at) for row in "ab"]
    assert prepared == before
    assert [body["messages"][-1]["content"] for body in bodies] == ["a", "b"]
    assert bodies[0]["response_format"] is bodies[1]["response_format"]


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ({"content": '{"label": "bug"}'}, Text('{"label": "bug"}')),
        ({"content": ""}, Text("")),
        ({"content": None}, Text("")),
        ({}, Text("")),
        ({"content": [{"type": "text", "text": "a"}, {"type": "thinking"}, {"text": "b"}, 3]}, Text("ab")),
        (
            {"content": None, "tool_calls": [{"function": {"arguments": '{"label": "bug"}'}}]},
            Structured({"label": "bug"}),
        ),
        ({"tool_calls": [{"function": {"arguments": {"label": 1}}}]}, Structured({"label": 1})),
        ({"tool_calls": [{"function": {"arguments": '{"label": '}}]}, Text('{"label": ')),
        ({"content": "x", "tool_calls": []}, Text("x")),
        ({"content": "x", "tool_calls": [{"function": None}], "refusal": None}, Text("x")),
    ],
)
def test_a_message_is_read_in_every_shape(message, reply):
    """Text, parts, tool arguments and nothing at all are replies; judging them comes later."""
    assert OPENAI.decode(choice(message)) == Completion(reply)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", Finish.STOP),
        ("tool_calls", Finish.STOP),
        ("eos", Finish.STOP),
        (None, Finish.STOP),
        ("something new", Finish.STOP),
        ({"a": 1}, Finish.STOP),
        ("length", Finish.TRUNCATED),
        ("model_length", Finish.TRUNCATED),
        ("content_filter", Finish.FILTERED),
    ],
)
def test_the_end_of_a_reply_is_told_in_one_vocabulary(reason, finish):
    """The vendors' words for how a reply ended become ours, with usage kept."""
    usage = {"prompt_tokens": 80, "completion_tokens": 9}
    completion = OPENAI.decode(choice({"content": "x"}, reason, usage=usage))
    assert completion == Completion(Text("x"), Usage(80, 9), finish)


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "refusal": "I will not."},
        {"content": [{"type": "refusal", "refusal": "I will not."}]},
    ],
)
def test_a_refusal_is_a_completion(message):
    """A refused request was answered, and is paid for."""
    completion = OPENAI.decode(choice(message, usage={"prompt_tokens": 5}))
    assert completion == Completion(Text("I will not."), Usage(input=5), Finish.REFUSED)


def test_usage_and_model_are_read():
    """Cached and reasoning tokens are parts of input and output, and the model is the one that answered."""
    usage = {
        "prompt_tokens": 80,
        "completion_tokens": 30,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 21},
    }
    completion = OPENAI.decode(choice({"content": "x"}, usage=usage, model="gpt-6-luna-2026-10-22"))
    assert completion == Completion(Text("x"), Usage(80, 30, 64, 21), model="gpt-6-luna-2026-10-22")


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        [],
        {},
        {"choices": []},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"text": "x"}]},
        choice(None),
        choice({"content": 3}),
        choice({"content": "x"}, "error"),
        choice({"content": "x"}, "insufficient_system_resource"),
    ],
)
def test_what_is_no_reply_may_be_asked_again(body):
    """A 200 of a foreign shape, or one the server gave up on, is a passing failure of the server."""
    failure = OPENAI.decode(body)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.scope) == ("server", Scope.TRANSIENT)


def test_an_error_comes_before_the_choices():
    """An error inside a 200 counts even beside a message."""
    failure = OPENAI.decode(choice({"content": "x"}, error={"code": 429, "message": "slow down"}))
    assert isinstance(failure, Failure)
    assert failure.kind == "rate_limited"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def loose(**fields):
    """Draw objects that have some of ``fields``, each of the given or any other shape."""
    return st.fixed_dictionaries({}, optional={name: shape | JSON for name, shape in fields.items()}) | JSON


CALL = loose(function=loose(arguments=JSON))
MESSAGE = loose(
    content=st.lists(loose(type=st.sampled_from(["text", "refusal"]), text=JSON)), tool_calls=st.lists(CALL)
)
USAGE = loose(prompt_tokens=st.integers(), prompt_tokens_details=loose(cached_tokens=st.integers()))
BODY = loose(choices=st.lists(loose(message=MESSAGE, finish_reason=st.text())), usage=USAGE, model=JSON, error=JSON)


@given(BODY)
def test_decoding_never_raises(body):
    """Any JSON is a completion with sane usage, or a failure."""
    read = OPENAI.decode(body)
    assert isinstance(read, Completion | Failure)
    if isinstance(read, Completion):
        assert 0 <= read.usage.cached <= read.usage.input
        assert 0 <= read.usage.reasoning <= read.usage.output
