"""What is sent, judged by the playground's own reading of the vendors' rules."""

from __future__ import annotations

import itertools
import json

import pytest

from batchkit._dialects import DIALECTS
from batchkit._dialects.errors import read_failure
from batchkit._dialects.profiles import PROFILES, check_settings, dialect_name
from batchkit._playground.rules import RuleBook
from batchkit._playground.unsupported import unsupported
from batchkit._playground.wires import VENDORS, WIRES
from batchkit.records import Brief, Endpoint, Question, Quirks, Turn

PLAIN = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "enum": ["bug", "billing"]},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
RICH = {
    "type": "object",
    "title": "Ticket",
    "properties": {
        "label": {"type": "string", "enum": ["bug", "billing"], "default": "bug"},
        "count": {"type": "integer", "exclusiveMinimum": 0},
        "other": {"oneOf": [{"$ref": "#/$defs/Other"}, {"type": "null"}]},
        "words": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 2, "uniqueItems": True},
    },
    "required": ["label"],
    "$defs": {"Other": {"type": "object", "properties": {"kind": {"const": "z"}}}},
}
MODELS = {
    "openai": [
        "gpt-3.5-turbo", "gpt-4", "gpt-4o", "gpt-4.1-mini", "gpt-5", "gpt-5.2-pro",
        "gpt-5-pro", "gpt-5.1", "gpt-5.2-chat-latest", "gpt-5.4-mini",
        "gpt-5.4-pro", "gpt-5.5", "gpt-5.6-x", "gpt-6-luna", "gpt-6-astra", "gpt-6.1-terra", "gpt-6.1-sol",
        "o3-mini", "o4-mini", "gpt-9",
    ],
    "anthropic": [
        "claude-3-5-haiku-20241022", "claude-haiku-4-5", "claude-opus-4-1", "claude-sonnet-4-6", "claude-opus-4-7",
        "claude-opus-5", "claude-opus-5-5", "claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5",
        "claude-fable-5", "claude-mythos-5", "claude-9",
    ],
    "gemini": [
        "gemini-2.0-flash", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro", "gemini-3.5-flash-lite",
        "gemini-3.7-flash", "gemini-3.8-flash", "gemini-3.1-pro", "gemini-4-carbon", "gemini-9",
    ],
    "ollama": ["qwen3", "gpt-oss:20b"],
    "groq": ["openai/gpt-oss-20b", "qwen/qwen3-32b", "llama-3.3-70b-versatile"],
    "mistral": ["mistral-small-latest", "magistral-medium-latest"],
    "qwen": ["qwen-plus", "qwen3.8-max"],
}  # fmt: skip
REASONING = (None, "off", "low", "medium", "high")
UNUSUAL = ("on", "default", "minimal", "xhigh")
PAIRS = [(vendor, model) for vendor in PROFILES for model in MODELS.get(vendor, ["some-model"])]


def endpoint(vendor, model, **settings):
    """Build an endpoint of a vendor, at its own address."""
    return Endpoint(vendor, model, PROFILES[vendor].base_url or "https://h", key="k", **settings)


def speaker(at):
    """Return the dialect that speaks to an endpoint, by name, and the vendor as the playground calls it."""
    return dialect_name(at), at.vendor if at.vendor in VENDORS else None


def sent(at, brief, quirks):
    """Return a request as it arrives: its body and headers."""
    dialect = DIALECTS[dialect_name(at)]
    question = Question(brief, "It broke.", (Turn("assistant", "?"), Turn("user", "Once more.")))
    body = dialect.encode(dialect.prepare(brief, at, quirks), question, at)
    return json.loads(json.dumps(body)), {name.lower(): value for name, value in dialect.headers(at).items()}


@pytest.mark.parametrize(("vendor", "model"), PAIRS)
def test_no_request_breaks_a_rule(vendor, model):
    """Whatever the schema, the settings that are let through, and the way to ask, the vendor takes the request."""
    found = set()
    efforts = REASONING if model in {"gpt-9", "claude-9", "gemini-9"} else (*REASONING, *UNUSUAL)
    for schema, reasoning, temperature, system, cap in itertools.product(
        (PLAIN, RICH, None), efforts, (None, 0.0), ("Label it.", ""), (None, 5)
    ):
        at = endpoint(vendor, model, reasoning=reasoning, temperature=temperature, max_output_tokens=cap)
        if check_settings(at) is not None:
            continue
        brief = Brief(system, ("bug", "billing"), schema, 64)
        book = RuleBook(*speaker(at))
        for rung in ("schema", "tool", "json", "text"):
            refusal = book.broken(*sent(at, brief, Quirks(rung=rung)), model)
            if refusal is not None:
                found.add((rung, refusal.param, refusal.message))
    assert found == set()


REFUSABLE = [
    "temperature", "json_schema", "response_format", "reasoning_effort", "reasoning", "effort", "thinking",
    "thinkingConfig", "think", "enable_thinking", "chat_template_kwargs", "responseJsonSchema", "output_config",
    "format", "text", "store",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSABLE)
@pytest.mark.parametrize(("vendor", "model"), [pair for pair in PAIRS if pair[1] == MODELS.get(pair[0], [pair[1]])[-1]])
def test_a_refused_parameter_is_learned(vendor, model, name):
    """A parameter that a model turns away in its vendor's words is not sent again, after few requests."""
    at = endpoint(vendor, model)
    brief, quirks = Brief("Label it.", ("bug", "billing"), PLAIN, 64), Quirks()
    dialect, kind = speaker(at)
    for _ in range(4):
        refusal = unsupported(dialect, kind, sent(at, brief, quirks)[0], [name])
        if refusal is None:
            return
        body = json.dumps(WIRES[dialect].error(refusal, "request-1")).encode()
        quirks = DIALECTS[dialect].adapt(read_failure(refusal.status, {}, body, 0.0), at, quirks, brief)
        assert quirks is not None
    pytest.fail("still sent")
