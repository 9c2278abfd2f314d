"""OpenAI's Responses: what is sent; how replies are read stands in recorded/openai-responses.json."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit.records import Brief, Completion, Endpoint, Failure, Question, Quirks, Turn

RESPONSES = DIALECTS["responses"]
SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["bug", "billing"]}},
    "required": ["label"],
    "additionalProperties": False,
}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)


def endpoint(model="gpt-6-luna", **settings):
    """Build an endpoint of OpenAI's."""
    return Endpoint("openai", model, "https://api.openai.com/v1", **settings)


def encode(question, at, quirks=Quirks()):  # noqa: B008
    """Prepare and encode in one go."""
    return RESPONSES.encode(RESPONSES.prepare(question.brief, at, quirks), question, at)


def test_a_question_is_written_as_responses_wants_it():
    """Nothing is stored, the system text is instructions, and the schema's format is flat."""
    question = Question(BRIEF, "screen frozen", (Turn("assistant", "?"), Turn("user", "a label please")))
    assert encode(question, endpoint()) == {
        "model": "gpt-6-luna",
        "instructions": "You label tickets.",
        "input": [
            {"role": "user", "content": "screen frozen"},
            {"role": "assistant", "content": "?"},
            {"role": "user", "content": "a label please"},
        ],
        "max_output_tokens": 64,
        "store": False,
        "reasoning": {"effort": "none"},
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}},
    }


def test_a_tool_is_written_flat():
    """A forced tool has its schema at its own level."""
    body = encode(Question(BRIEF, "row"), endpoint(), Quirks(rung="tool"))
    assert body["tools"][0]["parameters"] == SCHEMA
    assert body["tool_choice"] == {"type": "function", "name": "answer"}
    assert "text" not in body


def test_json_mode_says_json_in_a_message():
    """In JSON mode the system text is a message, for only there the word counts."""
    body = encode(Question(BRIEF, "row"), endpoint(), Quirks(rung="json"))
    assert body["text"] == {"format": {"type": "json_object"}}
    assert [message["role"] for message in body["input"]] == ["system", "user"]
    assert "JSON" in body["input"][0]["content"]
    assert "instructions" not in body


@pytest.mark.parametrize(("cap", "room", "sent"), [(4, 1, 16), (4, 4, 64), (64, 1, 64), (64, 4, 256)])
def test_the_cap_is_at_least_what_the_api_takes(cap, room, sent):
    """A cap below 16 is raised to it, and more room is more of that."""
    body = encode(Question(Brief("", max_output_tokens=cap), "row", room=room), endpoint())
    assert body["max_output_tokens"] == sent
    assert RESPONSES.cap(body) == sent


def test_the_users_settings_are_added():
    """What extra_body has for text is added to the format asked for."""
    at = endpoint("gpt-4o", temperature=0.0, extra_body={"text": {"verbosity": "low"}, "max_output_tokens": 20})
    body = encode(Question(BRIEF, "row", room=4), at)
    assert (body["temperature"], body["max_output_tokens"]) == (0.0, 20)
    assert body["text"].keys() == {"format", "verbosity"}
    assert "reasoning" not in body


def test_encoding_leaves_what_is_shared_as_it_was():
    """The prepared part is the same after any number of questions."""
    at = endpoint()
    prepared = RESPONSES.prepare(BRIEF, at)
    before = copy.deepcopy(prepared)
    for row in "ab":
        RESPONSES.encode(prepared, Question(BRIEF, row, room=2), at)
    assert prepared == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def loose(**fields):
    """Draw objects that have some of ``fields``, each of the given or any other shape."""
    return st.fixed_dictionaries({}, optional={name: shape | JSON for name, shape in fields.items()}) | JSON


ITEM = loose(
    type=st.sampled_from(["message", "reasoning", "function_call"]),
    content=st.lists(loose(type=st.sampled_from(["output_text", "refusal"]), text=JSON, refusal=JSON)),
    arguments=st.text(),
)
USAGE = loose(input_tokens=st.integers(), input_tokens_details=loose(cached_tokens=st.integers()))
BODY = loose(
    output=st.lists(ITEM), usage=USAGE, status=st.sampled_from(["completed", "incomplete"]), incomplete_details=JSON
)


@given(BODY)
def test_decoding_never_raises(body):
    """Any JSON is a completion with sane usage, or a failure."""
    read = RESPONSES.decode(body)
    assert isinstance(read, Completion | Failure)
    if isinstance(read, Completion):
        assert 0 <= read.usage.cached <= read.usage.input
        assert 0 <= read.usage.reasoning <= read.usage.output
