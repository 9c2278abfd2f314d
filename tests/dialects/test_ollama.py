"""Ollama's own chat: what is sent; how replies are read stands in recorded/ollama.json."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit.records import Brief, Completion, Endpoint, Failure, Question, Turn

OLLAMA = DIALECTS["ollama"]
SCHEMA = {"type": "object", "properties": {"label": {"enum": ["bug", "billing"]}}, "required": ["label"]}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)
HOST = "http://localhost:11434"


def endpoint(model="qwen3", base_url=HOST, **settings):
    """Build an endpoint of a local Ollama."""
    return Endpoint("ollama", model, base_url, **settings)


def encode(question, at):
    """Prepare and encode in one go."""
    return OLLAMA.encode(OLLAMA.prepare(question.brief, at), question, at)


@pytest.mark.parametrize("base", [HOST, f"{HOST}/", f"{HOST}/v1", f"{HOST}/v1/", f"{HOST}/api", f"{HOST}/api/chat"])
def test_every_spelling_gives_one_address(base):
    """The base URL of the other API, or of this one with its path, is understood."""
    assert OLLAMA.url(endpoint(base_url=base)) == f"{HOST}/api/chat"


def test_only_the_hosted_service_gets_a_key():
    """Without a key there is no header for one."""
    assert OLLAMA.headers(endpoint()) == {"Content-Type": "application/json"}
    assert OLLAMA.headers(endpoint(key="k"))["Authorization"] == "Bearer k"


def test_a_question_is_written_as_ollama_wants_it():
    """No stream, no thinking, nothing cut off, and the schema is the format."""
    question = Question(BRIEF, "screen frozen", (Turn("assistant", "?"), Turn("user", "a label please")))
    assert encode(question, endpoint(temperature=0.0)) == {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "You label tickets."},
            {"role": "user", "content": "screen frozen"},
            {"role": "assistant", "content": "?"},
            {"role": "user", "content": "a label please"},
        ],
        "stream": False,
        "think": False,
        "truncate": False,
        "shift": False,
        "format": SCHEMA,
        "options": {"num_ctx": 4096, "num_predict": 64, "temperature": 0.0},
    }


@pytest.mark.parametrize(
    ("system", "longest_row", "cap", "window"),
    [
        ("", 0, 64, 4096),
        ("x" * 4000, 4000, 96, 4096),
        ("x" * 4000, 4000, 97, 8192),
        ("汉" * 1000, 13_500, 64, 16384),
        ("", 1_000_000, 64, 32768),
    ],
)
def test_the_window_holds_the_longest_row(system, longest_row, cap, window):
    """The context window is the power of two that holds the longest request and its reply, within bounds."""
    brief = Brief(system, max_output_tokens=cap, longest_row=longest_row)
    assert OLLAMA.prepare(brief, endpoint())["options"]["num_ctx"] == window


@given(st.integers(0, 10**7), st.integers(1, 10**5))
def test_a_window_is_a_power_of_two(longest_row, cap):
    """Whatever comes, the window is a power of two that a small machine can hold."""
    brief = Brief("", max_output_tokens=cap, longest_row=longest_row)
    window = OLLAMA.prepare(brief, endpoint())["options"]["num_ctx"]
    assert window & (window - 1) == 0
    assert 4096 <= window <= 32768


@pytest.mark.parametrize(
    ("model", "reasoning", "think"),
    [
        ("qwen3", None, False),
        ("qwen3", "off", False),
        ("qwen3", "on", True),
        ("qwen3", "high", "high"),
        ("gpt-oss:20b", None, "low"),
        ("gpt-oss:20b", "off", "low"),
        ("gpt-oss:20b", "medium", "medium"),
    ],
)
def test_thinking_is_off_or_down_unless_asked_for(model, reasoning, think):
    """A model that can be kept from thinking is, another thinks as little as it can."""
    assert OLLAMA.prepare(BRIEF, endpoint(model, reasoning=reasoning))["think"] == think


def test_the_users_options_are_added():
    """What extra_body has for options is added to ours and wins, also where there is more room."""
    at = endpoint(extra_body={"options": {"seed": 1, "num_ctx": 65536}, "keep_alive": "10m"})
    body = encode(Question(BRIEF, "row", room=4), at)
    assert body["options"] == {"num_ctx": 65536, "num_predict": 256, "seed": 1}
    assert body["keep_alive"] == "10m"


def test_encoding_leaves_what_is_shared_as_it_was():
    """A question with more room gets it in a body of its own."""
    at = endpoint()
    prepared = OLLAMA.prepare(BRIEF, at)
    before = copy.deepcopy(prepared)
    bodies = [OLLAMA.encode(prepared, Question(BRIEF, row, room=4), at) for row in "ab"]
    assert prepared == before
    assert OLLAMA.cap(prepared) == 64
    assert [OLLAMA.cap(body) for body in bodies] == [256, 256]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def loose(**fields):
    """Draw objects that have some of ``fields``, each of the given or any other shape."""
    return st.fixed_dictionaries({}, optional={name: shape | JSON for name, shape in fields.items()}) | JSON


CALL = loose(function=loose(arguments=JSON))
BODY = loose(
    message=loose(content=st.text(), tool_calls=st.lists(CALL)),
    done=st.booleans(),
    done_reason=st.sampled_from(["stop", "length", "load"]),
    prompt_eval_count=st.integers(),
    eval_count=st.integers(),
)


@given(BODY)
def test_decoding_never_raises(body):
    """Any JSON is a completion with sane usage, or a failure."""
    read = OLLAMA.decode(body)
    assert isinstance(read, Completion | Failure)
    if isinstance(read, Completion):
        assert read.usage.input >= 0
        assert read.usage.output >= 0
