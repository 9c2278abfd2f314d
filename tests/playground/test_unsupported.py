"""A model that is told to refuse a parameter does so in the vendor's words, wherever the dialect has it."""

from __future__ import annotations

import pytest

from batchkit._playground.unsupported import given, unsupported

SCHEMA = {"type": "object", "properties": {"temperature": {"type": "number"}}}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "x", "seed": 1}],
    "temperature": 0,
    "max_tokens": 5,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
}
RESPONSES = {
    "model": "m",
    "input": "x",
    "reasoning": {"effort": "none"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
}
ANTHROPIC = {
    "model": "m",
    "temperature": 0,
    "thinking": {"type": "disabled"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
}
GEMINI = {
    "contents": [],
    "generationConfig": {
        "temperature": 0,
        "responseJsonSchema": SCHEMA,
        "thinkingConfig": {"thinkingLevel": "LOW"},
    },
}
OLLAMA = {"model": "m", "format": SCHEMA, "think": False, "options": {"temperature": 0}}
BODIES = {"openai": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC, "gemini": GEMINI, "ollama": OLLAMA}


@pytest.mark.parametrize(
    ("dialect", "vendor", "name", "status", "says", "param"),
    [
        ("openai", None, "temperature", 400, "'temperature' is not supported", "temperature"),
        ("openai", None, "max_tokens", 400, "Use 'max_completion_tokens' instead", "max_tokens"),
        ("openai", None, "response_format", 400, "'response_format' is not supported", "response_format"),
        ("openai", None, "json_schema", 400, "of type 'json_schema'", "response_format"),
        ("openai", "deepseek", "json_schema", 400, "unavailable now", None),
        ("openai", "deepseek", "temperature", 400, "'temperature' is not supported", "temperature"),
        ("openai", "mistral", "temperature", 422, "Extra inputs", "temperature"),
        ("responses", None, "effort", 400, "'reasoning.effort' is not supported", "reasoning.effort"),
        ("responses", None, "json_schema", 400, "of type 'json_schema'", "text.format"),
        ("anthropic", None, "temperature", 400, "`temperature` is not supported", None),
        ("anthropic", None, "thinking", 400, "`thinking` is not supported", None),
        ("anthropic", None, "effort", 400, "`output_config.effort` is not supported", None),
        ("anthropic", None, "json_schema", 400, "structured outputs are not supported", None),
        ("gemini", None, "temperature", 400, "\"temperature\" at 'generation_config'", "temperature"),
        ("gemini", None, "thinkingLevel", 400, "\"thinkingLevel\" at 'thinking_config'", "thinkingLevel"),
        ("gemini", None, "generationConfig", 400, '"generationConfig": Cannot', "generationConfig"),
        ("gemini", None, "json_schema", 400, '"responseJsonSchema"', "responseJsonSchema"),
        ("ollama", None, "think", 400, "does not support thinking", None),
        ("ollama", None, "temperature", 400, "options.temperature is not supported", None),
        ("ollama", None, "json_schema", 400, "format is not supported", None),
    ],
)
def test_a_named_parameter_is_refused(dialect, vendor, name, status, says, param):
    """A request that brings a parameter on the list is refused with the vendor's status, words and field."""
    refusal = unsupported(dialect, vendor, BODIES[dialect], ["frequency_penalty", name])
    assert (refusal.status, refusal.param) == (status, param)
    assert says in refusal.message


@pytest.mark.parametrize("dialect", list(BODIES))
def test_what_is_not_brought_is_not_refused(dialect):
    """Names inside messages and schemas are no parameters, and absent ones are no reason to refuse."""
    assert unsupported(dialect, None, BODIES[dialect], ["seed", "role", "properties", "top_p"]) is None


def test_json_mode_is_no_schema():
    """Only the wish for a schema counts as one."""
    assert "json_schema" not in given({**CHAT, "response_format": {"type": "json_object"}})
    assert "json_schema" not in given({**OLLAMA, "format": "json"})
