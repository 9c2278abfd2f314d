"""The playground understands what the vendors' clients send, and refuses what the vendors would."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.judge import Asked
from batchkit._playground.wires import VENDORS, WIRES, Doors, OpenAIWire, Refusal, Said

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
RESPONSES = {
    "model": "m",
    "instructions": "- a\n- b",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "the row"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
        {"type": "reasoning", "summary": []},
        {"role": "user", "content": "that is no label"},
    ],
    "max_output_tokens": 64,
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "- a\n- b"}]},
    "contents": [
        {"role": "user", "parts": [{"text": "the "}, {"text": "row"}]},
        {"role": "model", "parts": [{"text": "c"}]},
        {"role": "user", "parts": [{"text": "that is no label"}]},
    ],
    "generationConfig": {
        "maxOutputTokens": 64,
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    },
}
OLLAMA = {
    "model": "m",
    "messages": OPENAI["messages"],
    "stream": False,
    "format": SCHEMA,
    "options": {"num_predict": 64},
}
BODIES = {"openai": OPENAI, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI, "ollama": OLLAMA}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _without(body: dict, *names: str) -> dict:
    return {name: value for name, value in body.items() if name not in names}


@pytest.mark.parametrize(("dialect", "body"), list(BODIES.items()))
def test_a_request_is_understood(dialect, body):
    """The row is the first user message, and prompt, schema and cap are found in every format."""
    asked = WIRES[dialect].read(body, VERSION, "m")
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
            "responses",
            {
                **_without(RESPONSES, "text"),
                "tools": [{"type": "function", "name": "answer", "parameters": SCHEMA}],
                "tool_choice": {"type": "function", "name": "answer"},
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
    if dialect == "responses":
        assert (reply["output"][0]["type"], reply["output"][0]["arguments"]) == ("function_call", SAID.text)
    elif dialect == "openai":
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
        ("responses", None, {}, "could not parse"),
        ("responses", _without(RESPONSES, "input"), {}, "'input'"),
        ("responses", {**RESPONSES, "input": [{"role": "user", "content": 5}]}, {}, "of the user"),
        ("gemini", None, {}, "could not parse"),
        ("gemini", _without(GEMINI, "contents"), {}, "contents is not specified"),
        ("gemini", {**GEMINI, "contents": GEMINI["contents"][1:2]}, {}, "of the user"),
        ("ollama", None, {}, "could not parse"),
        ("ollama", _without(OLLAMA, "model"), {}, "model is required"),
        ("ollama", {**OLLAMA, "messages": []}, {}, "of the user"),
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


@given(st.sampled_from(list(BODIES)), json_values, st.data())
def test_no_body_is_a_surprise(dialect, body, data):
    """Any JSON at all is either understood or refused."""
    valid = BODIES[dialect]
    changes = data.draw(st.dictionaries(st.sampled_from(list(valid)), json_values))
    for candidate in (body, {**valid, **changes}):
        assert isinstance(WIRES[dialect].read(candidate, VERSION, "m"), Asked | Refusal)


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
        ("responses", {"authorization": "Bearer k"}, "k"),
        ("gemini", {"x-goog-api-key": "k"}, "k"),
        ("gemini", {"authorization": "Bearer k"}, None),
        ("ollama", {"authorization": "Bearer k"}, "k"),
    ],
)
def test_the_key_is_found_where_the_vendor_looks(dialect, headers, key):
    """A key counts only in the header in which the vendor expects it."""
    assert WIRES[dialect].key(headers) == key


def test_azure_has_a_header_of_its_own():
    """Azure takes its own header and the bearer key."""
    assert OpenAIWire("azure").key({"api-key": "k"}) == OpenAIWire("azure").key({"authorization": "Bearer k"}) == "k"
    assert OpenAIWire("groq").key({"api-key": "k"}) is None


ASKED = Asked("m", "row", input_tokens=9)
THOUGHT = Said("", None, True, 3, "beef", thought="hm")
CALL = Said('{"q":1}', {"q": 1}, False, 2, "beef", call="look_up")
REFUSED = Said("", None, False, 2, "beef", refusal="I cannot.")


def _chat(said):
    reply = WIRES["openai"].reply(ASKED, said)
    choice = reply["choices"][0]
    return choice["message"], choice["finish_reason"], reply["usage"]["completion_tokens_details"]["reasoning_tokens"]


def _response(said):
    reply = WIRES["responses"].reply(ASKED, said)
    return reply["output"], reply["incomplete_details"], reply["usage"]["output_tokens_details"]["reasoning_tokens"]


def _message(said):
    reply = WIRES["anthropic"].reply(ASKED, said)
    return [block["type"] for block in reply["content"]], reply["stop_reason"]


def _candidate(said):
    reply = WIRES["gemini"].reply(ASKED, said)
    return reply["candidates"][0], reply["usageMetadata"]


def test_thoughts_have_their_place():
    """What a model thought aloud stands apart from what it said, in each format."""
    message, finish, tokens = _chat(THOUGHT)
    assert (message["reasoning_content"], message["content"], finish, tokens) == ("hm", "", "length", 3)
    output, why, tokens = _response(THOUGHT)
    assert ([item["type"] for item in output], why, tokens) == (["reasoning"], {"reason": "max_output_tokens"}, 3)
    assert _message(THOUGHT) == (["thinking"], "max_tokens")
    candidate, usage = _candidate(THOUGHT)
    assert (candidate["content"]["parts"], candidate["finishReason"]) == (
        [{"text": "hm", "thought": True}],
        "MAX_TOKENS",
    )
    assert (usage["candidatesTokenCount"], usage["thoughtsTokenCount"], usage["totalTokenCount"]) == (0, 3, 12)
    reply = WIRES["ollama"].reply(ASKED, THOUGHT)
    assert (reply["message"]["thinking"], reply["done_reason"], reply["eval_count"]) == ("hm", "length", 3)


def test_tools_called_unasked_have_their_place():
    """A call of a tool stands instead of a text, in each format."""
    message, finish, _ = _chat(CALL)
    assert (message["content"], message["tool_calls"][0]["function"]["name"], finish) == (None, "look_up", "tool_calls")
    assert _response(CALL)[0][0]["name"] == "look_up"
    assert _message(CALL) == (["tool_use"], "tool_use")
    assert _candidate(CALL)[0]["content"]["parts"] == [{"functionCall": {"name": "look_up", "args": {"q": 1}}}]
    assert WIRES["ollama"].reply(ASKED, CALL)["message"]["tool_calls"][0]["function"]["arguments"] == {"q": 1}


def test_refusals_have_their_place():
    """A refusal of OpenAI's stands in a field or part of its own."""
    message, finish, _ = _chat(REFUSED)
    assert (message["content"], message["refusal"], finish) == (None, "I cannot.", "stop")
    assert _response(REFUSED)[0][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]


@pytest.mark.parametrize("dialect", list(WIRES))
def test_the_vendors_own_word_for_the_end_is_kept(dialect):
    """A reason to finish that a reply was given is written as it is."""
    said = Said("x", None, False, 1, "beef", finish="because")
    assert '"because"' in json.dumps(WIRES[dialect].reply(ASKED, said))


def test_nothing_said_leaves_out_parts():
    """An empty reply of Gemini's has a content without parts."""
    assert _candidate(Said("", None, False, 1, "beef"))[0]["content"] == {"role": "model"}


def test_ollama_streams_lines_unless_told_not_to():
    """Without stream=false the reply is one JSON object per line, the last of which says that it is done."""
    asked = WIRES["ollama"].read(_without(OLLAMA, "stream"), {})
    first, last = map(json.loads, WIRES["ollama"].reply(asked, SAID).splitlines())
    assert (first["message"]["content"], first["done"], last["done"], last["eval_count"]) == (SAID.text, False, True, 4)


@pytest.mark.parametrize(("vendor", "cap"), [(None, 64), ("groq", 64), ("deepseek", None), ("ollama-v1", None)])
def test_some_vendors_ignore_the_new_cap(vendor, cap):
    """A cap in a field that the vendor does not know holds nothing back."""
    assert OpenAIWire(vendor).read(OPENAI, {}).cap == cap


def test_llama_cpp_ignores_a_flat_schema():
    """At llama.cpp a schema in the wrong place constrains nothing, and in json_object it does."""
    wire = OpenAIWire("llama.cpp")
    assert wire.read({**OPENAI, "response_format": {"type": "json_schema", "schema": SCHEMA}}, {}).schema is None
    assert wire.read({**OPENAI, "response_format": {"type": "json_object", "schema": SCHEMA}}, {}).schema == SCHEMA


@pytest.mark.parametrize(
    ("dialect", "vendor", "method", "path", "wants", "model"),
    [
        ("openai", None, "POST", "/v1/chat/completions", "ask", None),
        ("openai", None, "POST", "/chat/completions", "ask", None),
        ("openai", None, "GET", "/v1/models", "models", None),
        ("responses", None, "POST", "/v1/responses", "ask", None),
        ("anthropic", None, "POST", "/v1/messages", "ask", None),
        ("gemini", None, "POST", "/v1beta/models/gemini-3.5-flash:generateContent", "ask", "gemini-3.5-flash"),
        ("gemini", None, "POST", "/v1/models/m:generateContent", "ask", "m"),
        ("gemini", None, "GET", "/v1beta/models", "models", None),
        ("ollama", None, "POST", "/api/chat", "ask", None),
        ("ollama", None, "GET", "/api/tags", "models", None),
        ("ollama", None, "POST", "/v1/chat/completions", "ask", None),
        ("openai", "groq", "POST", "/openai/v1/chat/completions", "ask", None),
        ("openai", "openrouter", "POST", "/api/v1/chat/completions", "ask", None),
        ("openai", "deepseek", "POST", "/chat/completions", "ask", None),
        ("openai", "azure", "POST", "/openai/deployments/mine/chat/completions", "ask", "mine"),
    ],
)
def test_doors_are_where_the_vendor_has_them(dialect, vendor, method, path, wants, model):
    """A request is let in at the vendor's own paths."""
    visit = Doors(dialect, vendor).find(method, path)
    assert (visit.wants, visit.model) == (wants, model)


@pytest.mark.parametrize(
    ("dialect", "method", "path"),
    [
        ("openai", "GET", "/v1/chat/completions"),
        ("openai", "POST", "/v1/v1/chat/completions"),
        ("openai", "POST", "/openai/deployments/mine/chat/completions"),
        ("gemini", "POST", "/models/m:generateContent"),
        ("gemini", "POST", "/v1beta/models/m:streamGenerateContent"),
        ("gemini", "POST", "/v1beta/models/a/b:generateContent"),
        ("gemini", "GET", "/v1beta/models/m:generateContent"),
        ("ollama", "POST", "/v1/api/chat"),
    ],
)
def test_other_doors_are_closed(dialect, method, path):
    """Nobody is at home anywhere else."""
    assert Doors(dialect).find(method, path) is None


@pytest.mark.parametrize("vendor", list(VENDORS))
def test_every_vendor_has_a_door(vendor):
    """Below its base URL every vendor takes chat completions."""
    assert Doors("openai", vendor).find("POST", f"{VENDORS[vendor]}/chat/completions") is not None


@pytest.mark.parametrize(
    ("dialect", "listed"),
    [
        ("gemini", lambda body: [row["name"] for row in body["models"]] == ["models/a", "models/b"]),
        ("ollama", lambda body: [row["name"] for row in body["models"]] == ["a", "b"]),
        ("responses", lambda body: [row["id"] for row in body["data"]] == ["a", "b"]),
    ],
)
def test_models_are_listed_in_the_vendors_shape(dialect, listed):
    """The list of models has the vendor's own shape."""
    assert listed(WIRES[dialect].models(["a", "b"]))
