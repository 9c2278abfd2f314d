"""The playground forbids what the vendors forbid, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._playground.rules import RuleBook, surprises
from batchkit._playground.wires import WIRES, OpenAIWire, Refusal

SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["bug", "billing"]}},
    "required": ["label"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"label": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "answer", "parameters": SCHEMA, "strict": True}}
FORCED = {"type": "function", "function": {"name": "answer"}}

CHAT: dict[str, Any] = {
    "model": "playground",
    "messages": [
        {"role": "system", "content": "You label tickets."},
        {"role": "user", "content": "Ticket: screen frozen"},
    ],
    "max_completion_tokens": 512,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "label", "strict": True, "schema": SCHEMA},
    },
}
RESPONSES: dict[str, Any] = {
    "model": "playground",
    "instructions": "You label tickets.",
    "input": "Ticket: screen frozen",
    "max_output_tokens": 512,
    "store": False,
    "text": {"format": {"type": "json_schema", "name": "label", "strict": True, "schema": SCHEMA}},
}
MESSAGES: dict[str, Any] = {
    "model": "playground",
    "max_tokens": 1024,
    "system": [{"type": "text", "text": "You label tickets.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}],
    "messages": [{"role": "user", "content": "Ticket: screen frozen"}],
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
}
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "You label tickets."}]},
    "contents": [{"role": "user", "parts": [{"text": "Ticket: screen frozen"}]}],
    "generationConfig": {
        "maxOutputTokens": 1024,
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
        "thinkingConfig": {"thinkingLevel": "MINIMAL"},
    },
}
OLLAMA: dict[str, Any] = {
    "model": "qwen3",
    "messages": CHAT["messages"],
    "stream": False,
    "think": False,
    "format": SCHEMA,
    "options": {"temperature": 0, "num_ctx": 8192, "num_predict": 128, "seed": 1},
    "keep_alive": "10m",
}
GOOD = {"openai": CHAT, "responses": RESPONSES, "anthropic": MESSAGES, "gemini": GEMINI, "ollama": OLLAMA}
VERSION = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
DROP = object()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _changed(body: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Change a body; a name with dots reaches into objects, and DROP leaves a field out."""
    body = dict(body)
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        if rest:
            body[head] = _changed(body.get(head, {}), {rest: value})
        elif value is DROP:
            body.pop(head, None)
        else:
            body[head] = value
    return body


def _refusal(
    dialect: str, vendor: str | None, changes: dict[str, Any], model: str = "playground", headers: Any = VERSION
) -> Refusal | None:
    body = _changed(GOOD[dialect], {} if dialect == "gemini" else {"model": model})
    return RuleBook(dialect, vendor).broken(_changed(body, changes), headers, model)


PLAIN = {"response_format": DROP}


@pytest.mark.parametrize(
    ("dialect", "vendor", "model", "changes"),
    [
        *((dialect, None, "playground", {}) for dialect in GOOD),
        ("openai", None, "gpt-6-luna", {"reasoning_effort": "none", "store": False}),
        ("openai", None, "gpt-6-luna", {"reasoning_effort": "none", "temperature": 0, "logprobs": True}),
        ("openai", None, "gpt-5.4", {"temperature": 0, "logprobs": True, "top_logprobs": 20}),
        ("openai", None, "gpt-5-mini", {"reasoning_effort": "minimal"}),
        ("openai", None, "gpt-4o-mini", {"temperature": 0.5, "max_completion_tokens": DROP, "max_tokens": 9}),
        ("openai", None, "gpt-6.1-sol", {"reasoning_effort": "low"}),
        ("openai", None, "playground", {**PLAIN, "tools": [TOOL], "tool_choice": FORCED}),
        ("openai", None, "playground", {"response_format.json_schema": {"name": "x", "schema": LOOSE}}),
        (
            "openai",
            None,
            "playground",
            {"response_format": {"type": "json_object"}, "messages": [{"role": "user", "content": "say JSON"}]},
        ),
        ("openai", "azure", "my-deployment", {}),
        ("openai", "mistral", "m", {"max_completion_tokens": DROP, "max_tokens": 5, "random_seed": 1}),
        ("openai", "deepseek", "d", {**PLAIN, "thinking": {"type": "disabled"}, "logprobs": True}),
        (
            "openai",
            "deepseek",
            "d",
            {**PLAIN, "thinking": {"type": "disabled"}, "tools": [TOOL], "tool_choice": FORCED},
        ),
        ("openai", "qwen", "qwen3.8-max", {"enable_thinking": False}),
        ("openai", "groq", "openai/gpt-oss-20b", {"reasoning_effort": "low"}),
        ("openai", "groq", "qwen/qwen3-32b", {"reasoning_effort": "none"}),
        ("openai", "together", "t", {"logprobs": 5}),
        ("openai", "openrouter", "openai/gpt-6-luna", {"provider": {"require_parameters": True}, "temperature": 0}),
        ("openai", "vllm", "v", {**PLAIN, "structured_outputs": {"choice": ["a", "b"]}}),
        ("openai", "vllm", "v", {"chat_template_kwargs": {"enable_thinking": False}}),
        ("openai", "llama.cpp", "l", {"response_format": {"type": "json_object", "schema": SCHEMA}}),
        ("openai", "ollama-v1", "q", {"max_completion_tokens": DROP, "max_tokens": 5, "reasoning_effort": "none"}),
        ("responses", None, "gpt-6-luna", {"reasoning": {"effort": "none"}, "top_logprobs": 20}),
        ("responses", None, "gpt-5.4-pro", {"reasoning": {"effort": "medium"}}),
        (
            "responses",
            None,
            "playground",
            {
                "input": [
                    {"role": "user", "content": [{"type": "input_text", "text": "row"}]},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
                    {"role": "user", "content": "again"},
                ]
            },
        ),
        ("anthropic", None, "claude-haiku-5-5", {"thinking": {"type": "disabled"}}),
        ("anthropic", None, "claude-sonnet-5-5", {"thinking": {"type": "between_tools"}}),
        ("anthropic", None, "claude-opus-5-5", {}),
        ("anthropic", None, "claude-haiku-4-5", {"temperature": 0, "output_config.effort": DROP}),
        (
            "anthropic",
            None,
            "claude-opus-4-6",
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
        ),
        (
            "anthropic",
            None,
            "claude-3-haiku",
            {
                "output_config": DROP,
                "tools": [{"name": "answer", "input_schema": LOOSE}],
                "tool_choice": {"type": "tool", "name": "answer", "disable_parallel_tool_use": True},
            },
        ),
        ("gemini", None, "gemini-3.5-flash-lite", {}),
        ("gemini", None, "gemini-3.8-flash", {"generationConfig.thinkingConfig": {"thinkingLevel": "LOW"}}),
        ("gemini", None, "gemini-2.5-flash", {"generationConfig.thinkingConfig": {"thinkingBudget": 0}}),
        (
            "gemini",
            None,
            "playground",
            {
                "generationConfig.responseJsonSchema": DROP,
                "generationConfig.responseMimeType": "text/x.enum",
                "generationConfig.responseSchema": {"type": "STRING", "enum": ["bug", "billing"]},
            },
        ),
        ("ollama", None, "qwen3", {"format": "json", "think": "low"}),
    ],
)
def test_good_requests_pass(dialect, vendor, model, changes):
    """A request as the documentation shows it breaks no rule."""
    assert _refusal(dialect, vendor, changes, model) is None


def _messages(*messages: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


@pytest.mark.parametrize(
    ("vendor", "model", "changes", "status", "says", "param"),
    [
        (None, "playground", {"messages": []}, 400, "empty array", "messages"),
        (None, "playground", {"enable_thinking": False}, 400, "Unknown parameter", "enable_thinking"),
        (None, "playground", {"max_tokens": 5}, 400, "at the same time", None),
        (
            None,
            "gpt-6-luna",
            {"max_completion_tokens": DROP, "max_tokens": 5},
            400,
            "Use 'max_completion",
            "max_tokens",
        ),
        (None, "o3", {"max_completion_tokens": DROP, "max_tokens": 5}, 400, "Use 'max_completion", "max_tokens"),
        (None, "playground", {"max_completion_tokens": 0}, 400, "below minimum", "max_completion_tokens"),
        (None, "playground", {"max_completion_tokens": "9"}, 400, "integer", "max_completion_tokens"),
        (None, "playground", {"temperature": 3}, 400, "from 0 to 2", "temperature"),
        (None, "playground", {"temperature": "0"}, 400, "a number", "temperature"),
        (None, "gpt-5-mini", {"temperature": 0}, 400, "not supported with this model", "temperature"),
        (None, "gpt-6-luna", {"temperature": 0}, 400, "not supported with this model", "temperature"),
        (None, "gpt-6-astra", {"logprobs": True}, 400, "not supported with this model", "logprobs"),
        (None, "o3", {"stop": ["x"]}, 400, "not supported with this model", "stop"),
        (None, "gpt-6-astra", {"reasoning_effort": "none"}, 400, "does not support 'none'", "reasoning_effort"),
        (None, "gpt-6-luna", {"reasoning_effort": "minimal"}, 400, "does not support 'minimal'", "reasoning_effort"),
        (None, "gpt-5.4", {"reasoning_effort": "max"}, 400, "does not support 'max'", "reasoning_effort"),
        (None, "gpt-5.2-chat-latest", {"reasoning_effort": "low"}, 400, "does not support 'low'", "reasoning_effort"),
        (None, "gpt-4o", {"reasoning_effort": "none"}, 400, "Unrecognized", "reasoning_effort"),
        (None, "gpt-5.5-pro", {}, 404, "only supported in v1/responses", "model"),
        (None, "playground", {"top_logprobs": 5}, 400, "requires 'logprobs'", "top_logprobs"),
        (None, "playground", {"logprobs": True, "top_logprobs": 21}, 400, "from 0 to 20", "top_logprobs"),
        (None, "playground", {"response_format": {"type": "json"}}, 400, "Supported values", "response_format"),
        (None, "playground", {"response_format": {"type": "json_object"}}, 400, "the word 'json'", "messages"),
        (
            None,
            "playground",
            {"response_format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
            400,
            "Missing required parameter",
            "response_format.json_schema.name",
        ),
        (
            None,
            "playground",
            {"response_format.json_schema.name": "my label"},
            400,
            "does not match pattern",
            "response_format.json_schema.name",
        ),
        (
            None,
            "playground",
            {"response_format.json_schema.schema": LOOSE},
            400,
            "Invalid schema for response_format 'label'",
            "response_format",
        ),
        (None, "playground", _messages(("model", "x")), 400, "Invalid value: 'model'", "messages[0].role"),
        (None, "playground", {"tool_choice": FORCED}, 400, "no function 'answer'", "tool_choice"),
        (None, "playground", {"tool_choice": "auto"}, 400, "only allowed when", "tool_choice"),
        (
            None,
            "playground",
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            400,
            "does not match pattern",
            "tools[0].function.name",
        ),
        (
            None,
            "playground",
            {"tools": [{"type": "function", "function": {"name": "a", "strict": True, "parameters": LOOSE}}]},
            400,
            "Invalid schema for function",
            "tools[0].function.parameters",
        ),
        (None, "playground", {"stream": True}, 400, "does not stream", "stream"),
        ("azure", "d", {"foo": 1}, 400, "Unknown parameter", "foo"),
        ("mistral", "m", {}, 422, "Extra inputs", "max_completion_tokens"),
        ("mistral", "m", {"max_completion_tokens": DROP, "seed": 1}, 422, "Extra inputs", "seed"),
        ("deepseek", "d", {}, 400, "unavailable now", None),
        ("deepseek", "d", {"response_format": {"type": "json_object"}}, 400, "the word 'json'", "messages"),
        ("deepseek", "d", {**PLAIN, "logprobs": True}, 400, "does not support logprobs", "logprobs"),
        (
            "deepseek",
            "d",
            {**PLAIN, "tools": [TOOL], "tool_choice": FORCED},
            400,
            "does not support this tool_choice",
            "tool_choice",
        ),
        ("deepseek", "d", {**PLAIN, "thinking": {"type": "off"}}, 422, "unknown variant", "thinking"),
        ("qwen", "qwen-plus", {}, 400, "json_schema is not supported", None),
        ("qwen", "qwen-plus", {"response_format": {"type": "json_object"}}, 400, "the word 'json'", "messages"),
        ("groq", "g", {"logprobs": True}, 400, "not supported", "logprobs"),
        ("groq", "g", {"n": 2}, 400, "at most 1", "n"),
        (
            "groq",
            "openai/gpt-oss-20b",
            {"reasoning_effort": "none"},
            400,
            "does not support 'none'",
            "reasoning_effort",
        ),
        ("groq", "g", _messages(("developer", "x"), ("user", "y")), 400, "'developer'", "messages[0].role"),
        ("together", "t", {"logprobs": True}, 400, "an integer", "logprobs"),
        ("vllm", "v", {"structured_outputs": {"choices": ["a"]}}, 400, "unexpected keyword argument 'choices'", None),
        ("vllm", "v", {"structured_outputs": {"choice": ["a"], "regex": "a"}}, 400, "only use one kind", None),
        ("llama.cpp", "l", {"json_schema": {}, "grammar": "x"}, 400, "not both", None),
        ("ollama-v1", "q", {"top_logprobs": 21, "logprobs": True}, 400, "from 0 to 20", "top_logprobs"),
        ("ollama-v1", "q", {"reasoning_effort": "minimal"}, 400, "does not support 'minimal'", "reasoning_effort"),
    ],
)
def test_bad_chat_completions(vendor, model, changes, status, says, param):
    """Each rule of chat completions, OpenAI's or another vendor's, refuses what breaks it and names the parameter."""
    refusal = _refusal("openai", vendor, changes, model)
    assert (refusal.status, refusal.param) == (status, param)
    assert says in refusal.message


@pytest.mark.parametrize(
    ("model", "changes", "says", "param"),
    [
        ("playground", {"max_output_tokens": 15}, "Expected a value >= 16", "max_output_tokens"),
        ("playground", {"response_format": {}}, "it is called 'text.format'", "response_format"),
        ("playground", {"messages": []}, "it is called 'input'", "messages"),
        ("playground", {"max_tokens": 20}, "it is called 'max_output_tokens'", "max_tokens"),
        ("playground", {"seed": 1}, "Unknown parameter", "seed"),
        ("playground", {"text.format": {"type": "json"}}, "Invalid value: 'json'", "text.format.type"),
        ("playground", {"text.format": {"type": "json_object"}}, "the word 'json'", "input"),
        ("playground", {"text.format": {"type": "json_schema", "json_schema": {}}}, "Missing", "text.format.name"),
        ("playground", {"text.format.schema": LOOSE}, "Invalid schema for text.format", "text.format"),
        ("playground", {"input": [{"role": "tool", "content": "x"}]}, "Invalid value: 'tool'", "input[0].role"),
        (
            "playground",
            {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
            "Invalid value: 'text'",
            "input[0].content[0].type",
        ),
        ("gpt-6-astra", {"reasoning": {"effort": "none"}}, "does not support 'none'", "reasoning.effort"),
        ("gpt-4o", {"reasoning": {"effort": "low"}}, "not supported with this model", "reasoning.effort"),
        ("gpt-6-luna", {"temperature": 0}, "not supported with this model", "temperature"),
        ("playground", {"tool_choice": {"type": "function", "name": "f"}}, "no function 'f'", "tool_choice"),
    ],
)
def test_bad_responses(model, changes, says, param):
    """Each rule of responses refuses what breaks it and names the parameter."""
    refusal = _refusal("responses", None, changes, model)
    assert (refusal.status, refusal.param) == (400, param)
    assert says in refusal.message


ANSWER_TOOL = {"name": "answer", "input_schema": LOOSE}
FORCED_TOOL = {"type": "tool", "name": "answer"}


@pytest.mark.parametrize(
    ("model", "changes", "says"),
    [
        ("playground", {"response_format": {}}, "response_format: Extra inputs"),
        ("playground", {"max_tokens": -1}, "max_tokens"),
        ("claude-haiku-4-5", {"max_tokens": 64_001}, "64001 > 64000"),
        ("playground", {"messages": []}, "at least one message"),
        ("playground", _messages(("system", "x"), ("user", "y")), "top-level `system`"),
        ("playground", _messages(("model", "x")), "'user' or 'assistant'"),
        ("playground", _messages(("user", "")), "non-empty content"),
        ("playground", _messages(("user", " \n")), "non-whitespace"),
        ("playground", _messages(("user", [{"type": "text", "text": ""}])), "must be non-empty"),
        ("playground", {"system": " "}, "system: text content blocks"),
        ("playground", _messages(("user", "x"), ("assistant", "{")), "prefill"),
        ("claude-haiku-5-5", {"output_config": DROP, **_messages(("user", "x"), ("assistant", "{"))}, "prefill"),
        ("claude-haiku-5-5", {"temperature": 0}, "`temperature` is not supported"),
        ("claude-opus-4-7", {"top_k": 1}, "`top_k` is not supported"),
        ("claude-haiku-4-5", {"temperature": 0, "top_p": 1}, "cannot both"),
        ("playground", {"temperature": 1.5}, "from 0 to 1"),
        ("playground", {"thinking": {"type": "off"}}, "'off' does not match"),
        ("claude-sonnet-5-5", {"thinking": {"type": "disabled"}}, '"thinking.type.disabled"'),
        ("claude-opus-5-5", {"thinking": {"type": "disabled"}}, '"thinking.type.disabled"'),
        ("claude-opus-4-7", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, '"thinking.type.enabled"'),
        ("playground", {"thinking": {"type": "enabled", "budget_tokens": 5}}, "budget_tokens"),
        ("playground", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "must be greater"),
        ("playground", {"output_config.effort": "none"}, "output_config.effort"),
        (
            "claude-haiku-5-5",
            {"thinking": {"type": "disabled"}, "output_config.effort": "max"},
            "'max' is not supported while thinking",
        ),
        ("claude-3-haiku", {}, "structured outputs are not supported"),
        ("playground", {"output_config.format": {"type": "json_object"}}, "output_config.format"),
        ("playground", {"output_config.format.schema": LOOSE}, "'additionalProperties' must be"),
        ("playground", {"tools": [{"name": "a b", "input_schema": LOOSE}]}, "tools.0.name"),
        ("playground", {"tools": [{"name": "a", "input_schema": {}}]}, "tools.0.input_schema.type"),
        ("playground", {"tools": [{**ANSWER_TOOL, "strict": True}]}, "tools.0.input_schema: "),
        ("playground", {"tools": [{"name": "a", "input_schema": SCHEMA, "strict": True}] * 21}, "at most 20"),
        ("playground", {"tool_choice": FORCED_TOOL}, "while providing tools"),
        ("playground", {"tools": [ANSWER_TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "'x' not found"),
        ("claude-sonnet-5-5", {"tools": [ANSWER_TOOL], "tool_choice": FORCED_TOOL}, "forcing a tool"),
        (
            "playground",
            {
                "max_tokens": 2000,
                "thinking": {"type": "enabled", "budget_tokens": 1024},
                "tools": [ANSWER_TOOL],
                "tool_choice": FORCED_TOOL,
            },
            "Thinking may not be enabled",
        ),
        ("playground", {"stream": True}, "does not stream"),
    ],
)
def test_bad_messages(model, changes, says):
    """Each rule of Anthropic's messages refuses what breaks it with HTTP 400."""
    refusal = _refusal("anthropic", None, changes, model)
    assert refusal.status == 400
    assert says in refusal.message


@pytest.mark.parametrize(
    ("headers", "changes", "status", "says"),
    [
        ({**VERSION, "authorization": "Bearer k"}, {}, 401, "Only one of"),
        ({"anthropic-version": "2024-01-01"}, {}, 400, "not a valid version"),
        ({"anthropic-version": "2026-10-21"}, {"temperature": 1}, 400, "`temperature` is not supported"),
    ],
)
def test_bad_anthropic_headers(headers, changes, status, says):
    """Two keys at once, an unknown version, and sampling under the new version are refused."""
    refusal = _refusal("anthropic", None, changes, headers=headers)
    assert refusal.status == status
    assert says in refusal.message


@pytest.mark.parametrize(
    ("model", "changes", "says"),
    [
        ("playground", {"messages": []}, 'Unknown name "messages"'),
        ("playground", {"generationConfig.max_tokens": 5}, "at 'generation_config'"),
        ("playground", {"generationConfig.thinkingConfig.effort": "low"}, "thinking_config"),
        ("playground", {"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "valid role: user, model"),
        ("playground", {"contents": [{"role": "user", "parts": []}]}, "must not be empty"),
        ("playground", {"contents": [{"role": "user", "parts": [{"text": ""}]}]}, "oneof field 'data'"),
        ("playground", {"systemInstruction": {"parts": []}}, "system_instruction"),
        ("playground", {"generationConfig.responseSchema": {"type": "STRING"}}, "Only one of"),
        ("playground", {"generationConfig.responseMimeType": DROP}, "must be application/json"),
        ("playground", {"generationConfig.responseJsonSchema": {"const": 1}}, '"const"'),
        ("gemini-2.5-flash", {}, "Thinking level is not supported"),
        ("gemini-3.8-flash", {}, "MINIMAL is not supported"),
        ("playground", {"generationConfig.thinkingConfig": {"thinkingLevel": "OFF"}}, "'OFF'"),
        ("playground", {"generationConfig.thinkingConfig.thinkingBudget": 0}, "only one of thinking budget"),
        ("gemini-2.5-pro", {"generationConfig.thinkingConfig": {"thinkingBudget": 0}}, "Budget 0 is invalid"),
        ("playground", {"generationConfig.maxOutputTokens": 0}, "below minimum"),
        ("playground", {"generationConfig.temperature": 3}, "from 0 to 2"),
        ("gemini-3.5-flash", {"generationConfig.responseLogprobs": True}, "Logprobs is not enabled"),
    ],
)
def test_bad_gemini_requests(model, changes, says):
    """Each rule of generateContent refuses what breaks it with HTTP 400."""
    refusal = _refusal("gemini", None, changes, model)
    assert refusal.status == 400
    assert says in refusal.message


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"format": "yaml"}, "invalid format"),
        ({"think": "none"}, "invalid think value"),
        ({"options.num_ctx": "8192"}, '"num_ctx" must be of type integer'),
        ({"options.temperature": "0"}, '"temperature" must be of type float32'),
        ({"top_logprobs": 21}, "from 0 to 20"),
        (_messages(("developer", "x")), "invalid role"),
        (_messages(("user", [{"type": "text", "text": "x"}])), "cannot unmarshal array"),
    ],
)
def test_bad_ollama_requests(changes, says):
    """Each rule of Ollama's chat refuses what breaks it with HTTP 400."""
    refusal = _refusal("ollama", None, changes)
    assert refusal.status == 400
    assert says in refusal.message


@pytest.mark.parametrize(
    ("dialect", "vendor", "changes", "says"),
    [
        ("openai", "vllm", {"guided_choice": ["a"]}, "guided_choice"),
        ("openai", "deepseek", {}, "max_completion_tokens"),
        ("openai", "ollama-v1", {}, "max_completion_tokens"),
        (
            "openai",
            "llama.cpp",
            {"response_format": {"type": "json_schema", "schema": SCHEMA}},
            "response_format.schema",
        ),
        ("ollama", None, {"max_tokens": 5}, "max_tokens"),
        ("ollama", None, {"stream": DROP}, "stream: is missing"),
        ("ollama", None, {"options": {}, **_messages(("user", "x" * 20_000))}, "5000 tokens of prompt are cut to 4096"),
    ],
)
def test_what_is_passed_over_in_silence_is_noted(dialect, vendor, changes, says):
    """What a vendor ignores without a word is not refused, and said to whoever reads the record."""
    body = _changed(GOOD[dialect], changes)
    asked = (OpenAIWire(vendor) if vendor is not None else WIRES[dialect]).read(body, VERSION)
    (found,) = surprises(dialect, vendor, body, asked)
    assert says in found


@pytest.mark.parametrize("dialect", list(GOOD))
def test_good_requests_hold_no_surprise(dialect):
    """Nothing of a request as the documentation shows it is passed over."""
    assert surprises(dialect, None, GOOD[dialect], WIRES[dialect].read(GOOD[dialect], VERSION, "m")) == []


def test_settings_are_judged_anew_when_they_change():
    """What is remembered of one request's settings excuses no other's."""
    book = RuleBook("anthropic")
    assert book.broken(MESSAGES, VERSION, "playground") is None
    assert book.broken(MESSAGES, VERSION, "playground") is None
    assert book.broken(MESSAGES, VERSION, "claude-3-haiku") is not None
    assert book.broken({**MESSAGES, "temperature": 2}, VERSION, "playground") is not None
    assert book.broken(MESSAGES, {**VERSION, "authorization": "Bearer k"}, "playground") is not None
    assert book.broken({**MESSAGES, "messages": []}, VERSION, "playground") is not None
    for number in range(200):
        assert book.broken({**MESSAGES, "max_tokens": number}, VERSION, "playground") is None


@given(
    st.sampled_from(
        [*((dialect, None) for dialect in GOOD), *(("openai", vendor) for vendor in ("mistral", "deepseek", "vllm"))]
    ),
    st.sampled_from(["playground", "gpt-6-luna", "claude-haiku-5-5", "gemini-2.5-pro"]),
    st.data(),
)
def test_no_request_is_a_surprise(speaker, model, data):
    """Any JSON object at all either breaks a rule or does not."""
    dialect, vendor = speaker
    body = GOOD[dialect]
    groups = [name for name, value in body.items() if isinstance(value, dict)]
    changes = data.draw(st.dictionaries(st.sampled_from(list(body)), json_values))
    inside = data.draw(st.sampled_from(groups)) if groups else None
    if inside is not None and isinstance(body[inside], dict):
        changed = data.draw(st.dictionaries(st.sampled_from(list(body[inside])), json_values))
        changes.setdefault(inside, {**body[inside], **changed})
    found = RuleBook(dialect, vendor).broken({**body, **changes}, VERSION, model)
    assert isinstance(found, Refusal | None)
