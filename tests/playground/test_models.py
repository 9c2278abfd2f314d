"""Models are known by name, with any dated or named variant."""

from __future__ import annotations

import pytest

from batchkit._playground.models import claude, gemini_thinking, gpt, groq_efforts


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini", "gpt-5"),
        ("openai/gpt-6-luna", "gpt-6-luna"),
        ("gpt-5.6-codex", "gpt-5.6"),
        ("gpt-5-chat-latest", "gpt-5-chat"),
        ("o4-mini", "o4"),
    ],
)
def test_a_variant_is_like_its_base(name, like):
    """A date, a size or a gateway's prefix changes nothing of what a model takes."""
    assert gpt(name) is gpt(like) is not None


@pytest.mark.parametrize("name", ["playground", "gpt-6.2-sol", "gpt-9", "", "o"])
def test_an_unknown_model_has_no_rules(name):
    """Nothing is claimed of a model that is in no row."""
    assert gpt(name) is None


@pytest.mark.parametrize(
    ("name", "sampling", "thinking"),
    [
        ("claude-haiku-4-5-20251001", True, None),
        ("anthropic/claude-sonnet-5-5", False, {"between_tools", "adaptive"}),
        ("claude-opus-5-5", False, {"adaptive"}),
        ("claude-fable-5-7", False, {"adaptive"}),
        ("playground", True, None),
    ],
)
def test_claude_models(name, sampling, thinking):
    """A model of Anthropic's is known by what it makes of sampling and thinking."""
    assert (claude(name).sampling, claude(name).thinking) == (sampling, thinking)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("gemini-2.5-pro", (False, True, False)),
        ("gemini-2.5-flash", (False, True, True)),
        ("gemini-3.5-flash-lite", (True, True, True)),
        ("gemini-3.8-flash", (True, False, True)),
        ("gemini-4-carbon", (True, False, True)),
        ("playground", (True, True, True)),
    ],
)
def test_gemini_models(name, takes):
    """A model of Google's takes levels of thinking or a budget, and not every one of them."""
    assert gemini_thinking(name) == takes


def test_groq_models():
    """At Groq the efforts depend on whose model it is."""
    assert groq_efforts("openai/gpt-oss-20b") == {"low", "medium", "high"}
    assert groq_efforts("qwen/qwen3-32b") == {"none", "default"}
    assert groq_efforts("llama-3.3-70b-versatile") is None
