"""The tables of vendors and models, and what they refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit._dialects.base import check_base_url
from batchkit._dialects.profiles import PROFILES, check_settings, default_concurrency, is_local, traits_of
from batchkit.records import Endpoint


def endpoint(vendor, model, **settings):
    """Build an endpoint whose address does not matter."""
    return Endpoint(vendor, model, "https://h", **settings)


@pytest.mark.parametrize("vendor", PROFILES)
def test_a_vendor_can_be_asked(vendor):
    """Every row names a dialect that exists, and an address that works or none."""
    profile = PROFILES[vendor]
    assert profile.vendor == vendor
    assert profile.dialect in DIALECTS
    assert profile.base_url is None or check_base_url(profile.base_url) is None
    assert profile.key_env or not profile.key_required


@pytest.mark.parametrize(
    ("model", "effort", "sampling", "thinks"),
    [
        ("gpt-4o-mini", None, "always", False),
        ("gpt-4.1-2025-04-14", None, "always", False),
        ("gpt-4-0613", None, "always", False),
        ("gpt-5-chat-latest", None, "always", False),
        ("gpt-5", "minimal", "never", True),
        ("gpt-5-nano-2025-08-07", "minimal", "never", True),
        ("gpt-5-pro", "high", "never", True),
        ("gpt-5.1", "none", "unless_thinking", False),
        ("gpt-5.4-mini", "none", "unless_thinking", False),
        ("gpt-5.4-pro-2026-03-05", "medium", "never", True),
        ("gpt-5.2-chat-latest", "medium", "never", True),
        ("gpt-5.6-anything", "none", "unless_thinking", False),
        ("gpt-6-luna", "none", "unless_thinking", False),
        ("OpenAI/GPT-6-luna", "none", "unless_thinking", False),
        ("gpt-6-astra", "low", "never", True),
        ("o3-mini", "low", "never", True),
        ("o1-2024-12-17", "low", "never", True),
        ("ft:gpt-4o-mini-2024-07-18:org::id", None, "always", False),
        ("gpt-5.9", None, "always", True),
        ("gpt-6.2-sol", None, "always", True),
        ("o30", None, "always", True),
        ("", None, "always", True),
    ],
)
def test_an_openai_model_is_found_by_its_longest_prefix(model, effort, sampling, thinks):
    """Variants follow their base name, another version is another model, and an unknown one gets no effort."""
    traits = traits_of(endpoint("openai", model))
    assert (traits.effort, traits.sampling, traits.thinks) == (effort, sampling, thinks)


@pytest.mark.parametrize(
    ("model", "thinking", "structured", "sampling", "thinks"),
    [
        ("claude-2.1", None, False, "always", False),
        ("claude-3-5-haiku-20241022", None, False, "always", False),
        ("claude-sonnet-4-20250514", None, False, "always", False),
        ("claude-opus-4-1-20250805", None, True, "always", False),
        ("claude-haiku-4-5", None, True, "always", False),
        ("claude-sonnet-4-6", None, True, "unless_thinking", False),
        ("claude-opus-4-7", None, True, "never", False),
        ("claude-opus-5", {"type": "disabled"}, True, "never", False),
        ("claude-haiku-5-5", {"type": "disabled"}, True, "never", False),
        ("us.anthropic.claude-haiku-5-5-20261001-v1:0", {"type": "disabled"}, True, "never", False),
        ("claude-sonnet-5-5", {"type": "between_tools"}, True, "never", False),
        ("claude-opus-5-5@20261001", None, True, "never", True),
        ("claude-fable-5-3", None, True, "never", True),
        ("claude-mythos-5", None, True, "never", True),
        ("claude-opus-6", None, True, "always", True),
        ("claude-opus-5-7", None, True, "always", True),
        ("something-else", None, True, "always", True),
    ],
)
def test_a_claude_model_is_found_by_its_longest_prefix(model, thinking, structured, sampling, thinks):
    """Each family has its own way to be kept from thinking, and an unknown one is sent none."""
    traits = traits_of(endpoint("anthropic", model))
    assert (traits.thinking, traits.structured, traits.sampling, traits.thinks) == (
        thinking,
        structured,
        sampling,
        thinks,
    )


@pytest.mark.parametrize("model", ["claude-fable-5", "claude-opus-5-5"])
def test_a_claude_that_must_think_thinks_little(model):
    """Where thinking cannot be switched off, it is asked for at its lowest."""
    assert traits_of(endpoint("anthropic", model)).effort == "low"


@pytest.mark.parametrize("reasoning", ["off", "none"])
def test_an_unknown_model_is_told_to_stop_thinking_only_when_asked(reasoning):
    """The user's word is sent where no table knows better."""
    assert traits_of(endpoint("openai", "gpt-9", reasoning=reasoning)).effort == "none"
    assert traits_of(endpoint("anthropic", "claude-9", reasoning=reasoning)).thinking == {"type": "disabled"}
    assert traits_of(endpoint("openai", "gpt-9", reasoning="low")).effort is None


@given(st.sampled_from(sorted(PROFILES)), st.text(), st.none() | st.text(), st.none() | st.floats())
def test_any_model_name_has_traits(vendor, model, reasoning, temperature):
    """No name and no setting makes the tables fail."""
    asked = endpoint(vendor, model, reasoning=reasoning, temperature=temperature)
    profile = PROFILES[vendor]
    assert traits_of(asked) in [*profile.models.values(), profile.unknown, profile.unknown_off]
    message = check_settings(asked)
    assert message is None or any(way in message for way in ("eave", "extra_body=", "no model name"))


@pytest.mark.parametrize(
    ("vendor", "model", "settings", "why"),
    [
        ("openai", "gpt-5", {"temperature": 0.0}, "takes no temperature"),
        ("openai", "gpt-6-luna", {"temperature": 0.0, "reasoning": "low"}, "only without reasoning"),
        ("openai", "gpt-4o", {"reasoning": "high"}, "takes no reasoning effort"),
        ("anthropic", "claude-opus-4-7", {"temperature": 0.5}, "takes no temperature"),
        ("anthropic", "claude-haiku-4-5", {"reasoning": "low"}, "takes no reasoning effort"),
        ("openai", "gpt-4-turbo", {"reasoning": "low"}, "takes no reasoning effort"),
        ("openai", "gpt-5.4-pro", {"reasoning": "low"}, "takes only 'medium', 'high' and 'xhigh'"),
        ("openai", "gpt-5-pro", {"reasoning": "medium"}, "takes only 'high'"),
        ("openai", "gpt-5.2-chat-latest", {"reasoning": "high"}, "takes only 'medium'"),
        ("openai", "gpt-6-luna", {"reasoning": "minimal"}, "takes only 'low'"),
        ("openai", "gpt-9", {"reasoning": "on"}, "Give one, such as 'low'"),
        ("anthropic", "claude-haiku-5-5", {"reasoning": "on"}, "takes only 'low'"),
        ("gemini", "gemini-2.0-flash", {"reasoning": "low"}, "takes no reasoning effort"),
        ("gemini", "gemini-3.8-flash", {"reasoning": "minimal"}, "takes only 'low'"),
        ("groq", "qwen/qwen3-32b", {"reasoning": "high"}, "takes only 'default'"),
        ("ollama", "qwen3", {"reasoning": "minimal"}, "takes only 'on', 'low'"),
        ("openai-compatible", "qwen3", {"reasoning": "off"}, "extra_body="),
    ],
)
def test_a_setting_the_model_refuses_is_named(vendor, model, settings, why):
    """What every row would fail on is known, and named with its value, before anything is sent."""
    message = check_settings(endpoint(vendor, model, **settings))
    assert message is not None
    assert why in message
    assert f"{next(iter(settings))}={next(iter(settings.values()))!r}" in message or why == "extra_body="


@pytest.mark.parametrize(
    ("vendor", "model", "settings"),
    [
        ("openai", "gpt-5", {}),
        ("openai", "gpt-5", {"reasoning": "low"}),
        ("openai", "gpt-6-luna", {"temperature": 0.0}),
        ("openai", "gpt-6-luna", {"temperature": 0.0, "reasoning": "off"}),
        ("openai", "gpt-4o", {"temperature": 1.0, "reasoning": "off"}),
        ("openai", "gpt-9", {"temperature": 1.0, "reasoning": "low"}),
        ("anthropic", "claude-haiku-4-5", {"temperature": 0.5, "reasoning": "off"}),
        ("anthropic", "claude-opus-5", {"reasoning": "low"}),
        ("openai", "gpt-5.4-pro", {"reasoning": "medium"}),
        ("openai", "gpt-5.4-pro", {"reasoning": "off"}),
        ("groq", "qwen/qwen3-32b", {"reasoning": "default"}),
        ("groq", "qwen/qwen3-32b", {"reasoning": "off"}),
        ("gemini", "gemini-2.5-flash", {"reasoning": "on"}),
        ("ollama", "qwen3", {"reasoning": "on"}),
        ("openai-compatible", "qwen3", {"temperature": 0.0}),
    ],
)
def test_a_setting_the_model_takes_is_let_through(vendor, model, settings):
    """Nothing is refused that may work, and nothing at all of a model nobody knows."""
    assert check_settings(endpoint(vendor, model, **settings)) is None


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1234/v1", True),
        ("http://LOCALHOST", True),
        ("http://127.0.0.1:8000", True),
        ("http://127.1.2.3", True),
        ("http://[::1]:8080/v1", True),
        ("http://0.0.0.0:8000", True),
        ("http://host.docker.internal:8000", True),
        ("https://api.openai.com/v1", False),
        ("https://localhost.example.com", False),
        ("http://10.0.0.5:8000", False),
    ],
)
def test_a_server_on_this_machine_is_recognised(url, local):
    """Only this machine's own names and addresses are local."""
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("vendor", "url", "slots"),
    [
        ("openai-compatible", "http://localhost:8000/v1", 4),
        ("openai-compatible", "https://api.example.com/v1", 16),
        ("openai", "http://127.0.0.1:8000/v1", 16),
        ("anthropic", "https://api.anthropic.com", 16),
    ],
)
def test_a_local_server_is_asked_to_bear_less(vendor, url, slots):
    """A hosted vendor gets 16 requests at once, a compatible server on this machine 4."""
    assert default_concurrency(PROFILES[vendor], url) == slots
