"""Addresses, keys and fields of everybody who speaks OpenAI's formats."""

from __future__ import annotations

import pytest

from batchkit._dialects import DIALECTS
from batchkit._dialects.base import check_base_url
from batchkit._dialects.profiles import PROFILES, check_settings, default_concurrency, dialect_name, is_own
from batchkit.errors import ConfigError
from batchkit.records import Brief, Endpoint

BRIEF = Brief("You label tickets.", schema={"type": "object", "properties": {}}, max_output_tokens=64)
DEPLOYMENT = "https://res.openai.azure.com/openai/deployments/d"


def url(vendor, base_url, model="m", dialect="openai"):
    """Return the address that questions go to."""
    return DIALECTS[dialect].url(Endpoint(vendor, model, base_url))


def body(vendor, model="m", **settings):
    """Build what all requests to a vendor share."""
    at = Endpoint(vendor, model, PROFILES[vendor].base_url or "https://h", **settings)
    return DIALECTS["openai"].prepare(BRIEF, at)


@pytest.mark.parametrize(
    ("vendor", "host", "version"),
    [
        ("openai", "https://api.openai.com", "/v1"),
        ("openai", "https://eu.api.openai.com", "/v1"),
        ("groq", "https://api.groq.com", "/openai/v1"),
        ("mistral", "https://api.eu.mistral.ai", "/v1"),
        ("openrouter", "https://openrouter.ai", "/api/v1"),
        ("together", "https://api.together.ai", "/v1"),
        ("qwen", "https://dashscope-us.aliyuncs.com", "/compatible-mode/v1"),
        ("vllm", "http://localhost:8000", "/v1"),
        ("llama.cpp", "http://127.0.0.1:8080", "/v1"),
        ("lm-studio", "http://[::1]:1234", "/v1"),
        ("ollama-v1", "http://localhost:11434", "/v1"),
        ("azure", "https://res.openai.azure.com", "/openai/v1"),
        ("openai-compatible", "https://gateway.example.com", "/v1"),
        ("groq", "https://gateway.example.com", "/v1"),
    ],
)
@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_every_spelling_gives_one_address(vendor, host, version, dialect):
    """With or without version and slash, each vendor's base URL leads to the same place."""
    method = {"openai": "chat/completions", "responses": "responses"}[dialect]
    for base in (host, f"{host}/", f"{host}{version}", f"{host}{version}/", f"{host}{version}/{method}"):
        assert url(vendor, base, dialect=dialect) == f"{host}{version}/{method}"


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://api.deepseek.com", "https://api.deepseek.com/chat/completions"),
        ("https://api.deepseek.com/", "https://api.deepseek.com/chat/completions"),
        ("https://api.deepseek.com/v1", "https://api.deepseek.com/v1/chat/completions"),
        ("https://api.deepseek.com/v1/", "https://api.deepseek.com/v1/chat/completions"),
    ],
)
def test_deepseek_needs_no_version(base, address):
    """DeepSeek's address is right as it is documented, and with the version that users add."""
    assert url("deepseek", base) == address


@pytest.mark.parametrize("vendor", [name for name, profile in PROFILES.items() if profile.dialect == "openai"])
def test_a_vendors_own_address_is_complete(vendor):
    """The base URL in the table leads to chat completions as it stands."""
    base = PROFILES[vendor].base_url
    assert base is None or url(vendor, base) == f"{base}/chat/completions"


@pytest.mark.parametrize(
    ("base", "address"),
    [
        (DEPLOYMENT, f"{DEPLOYMENT}/chat/completions?api-version=2024-10-21"),
        (f"{DEPLOYMENT}/", f"{DEPLOYMENT}/chat/completions?api-version=2024-10-21"),
        (
            f"{DEPLOYMENT}?api-version=2025-01-01-preview",
            f"{DEPLOYMENT}/chat/completions?api-version=2025-01-01-preview",
        ),
        (f"{DEPLOYMENT}/chat/completions?api-version=1", f"{DEPLOYMENT}/chat/completions?api-version=1"),
        ("https://res.openai.azure.com?api-version=1", f"{DEPLOYMENT}/chat/completions?api-version=1"),
        (
            "https://res.openai.azure.com/openai/v1?api-version=preview",
            "https://res.openai.azure.com/openai/v1/chat/completions?api-version=preview",
        ),
    ],
)
def test_azures_older_addresses_work(base, address):
    """A deployment's address is used as it is, and one is made where only a version was given."""
    assert check_base_url(base) is None
    assert url("azure", base, model="d") == address


@pytest.mark.parametrize("model", ["..", "a/b"])
def test_a_deployments_name_stays_in_its_place(model):
    """A name that would change the address is refused."""
    with pytest.raises(ConfigError, match="no model name"):
        url("azure", "https://res.openai.azure.com?api-version=1", model=model)
    assert check_settings(Endpoint("azure", model, "https://h")) is not None


@pytest.mark.parametrize("query", ["key=secret", "api-version=1&key=secret", "api-version=", "api-version=a b"])
def test_nothing_else_may_stand_in_a_query(query):
    """Only Azure's version is taken from an address, never a key."""
    assert "secret" not in (check_base_url(f"https://h?{query}") or "secret")


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ({"key": "k"}, {"api-key": "k"}),
        ({"key": "eyJh.eyJi.c"}, {"Authorization": "Bearer eyJh.eyJi.c"}),
        ({"key": "k", "headers": {"authorization": "own"}}, {"authorization": "own"}),
        ({}, {}),
    ],
)
def test_azure_has_its_own_header_for_keys(settings, headers):
    """A key goes into api-key, an Entra token is a bearer token, and there is one of them at most."""
    at = Endpoint("azure", "m", "https://h", **settings)
    assert DIALECTS["openai"].headers(at) == {"Content-Type": "application/json", **headers}


@pytest.mark.parametrize(
    ("vendor", "model", "settings", "fields"),
    [
        ("azure", "gpt-5", {}, {"max_completion_tokens": 64 + 4096}),
        ("groq", "openai/gpt-oss-20b", {}, {"max_completion_tokens": 64 + 4096, "reasoning_effort": "low"}),
        ("groq", "qwen/qwen3-32b", {}, {"max_completion_tokens": 64, "reasoning_effort": "none"}),
        ("groq", "llama-3.3-70b-versatile", {}, {"max_completion_tokens": 64}),
        ("mistral", "mistral-small-latest", {}, {"max_tokens": 64}),
        ("mistral", "magistral-medium-latest", {}, {"max_tokens": 64 + 4096}),
        ("deepseek", "deepseek-v4-flash", {}, {"max_tokens": 64, "thinking": {"type": "disabled"}}),
        (
            "deepseek",
            "deepseek-v4-flash",
            {"reasoning": "on"},
            {"max_tokens": 64 + 4096, "thinking": {"type": "enabled"}},
        ),
        ("openrouter", "x/y", {}, {"max_tokens": 64 + 4096, "provider": {"require_parameters": True}}),
        (
            "openrouter",
            "x/y",
            {"reasoning": "off", "extra_body": {"provider": {"sort": "price"}}},
            {
                "max_tokens": 64,
                "provider": {"require_parameters": True, "sort": "price"},
                "reasoning": {"effort": "none"},
            },
        ),
        ("together", "openai/gpt-oss-20b", {}, {"max_tokens": 64 + 4096, "reasoning_effort": "low"}),
        ("qwen", "qwen-plus", {}, {"max_tokens": 64, "enable_thinking": False}),
        ("vllm", "qwen3", {}, {"max_tokens": 64, "chat_template_kwargs": {"enable_thinking": False}}),
        (
            "llama.cpp",
            "qwen3",
            {"reasoning": "on"},
            {"max_tokens": 64 + 4096, "chat_template_kwargs": {"enable_thinking": True}},
        ),
        ("lm-studio", "qwen3", {}, {"max_tokens": 64}),
        ("ollama-v1", "qwen3", {}, {"max_tokens": 64, "reasoning_effort": "none"}),
    ],
)
def test_each_vendor_gets_its_own_fields(vendor, model, settings, fields):
    """The cap's name, the switch for thinking, and what a vendor must have are its own, and nothing else is sent."""
    common = {"model", "messages", "response_format", "tools", "tool_choice"}
    sent = body(vendor, model, **settings)
    assert {name: value for name, value in sent.items() if name not in common} == fields


@pytest.mark.parametrize("vendor", ["deepseek", "qwen", "llama.cpp"])
def test_an_effort_is_refused_where_there_is_only_a_switch(vendor):
    """A vendor that knows no efforts is not sent one, nor is it left out in silence."""
    assert "'on' or 'off'" in (check_settings(Endpoint(vendor, "m", "https://h", reasoning="low")) or "")
    for reasoning in ("on", "off", None):
        assert check_settings(Endpoint(vendor, "m", "https://h", reasoning=reasoning)) is None


@pytest.mark.parametrize(
    ("vendor", "model", "dialect"),
    [
        ("openai", "gpt-6-luna", "openai"),
        ("openai", "gpt-5.4-pro-2026-03-05", "responses"),
        ("openai", "gpt-5-pro", "responses"),
        ("gemini", "gemini-4-carbon", "gemini"),
        ("ollama", "qwen3", "ollama"),
        ("groq", "openai/gpt-oss-20b", "openai"),
    ],
)
def test_a_model_is_spoken_to_in_the_format_that_has_it(vendor, model, dialect):
    """Models that chat completions do not have are asked through Responses."""
    assert dialect_name(Endpoint(vendor, model, "https://h")) == dialect


@pytest.mark.parametrize(
    ("vendor", "base_url", "own"),
    [
        ("openai", "https://eu.api.openai.com/v1", True),
        ("openai", "https://gateway.example.com/v1", False),
        ("qwen", "https://dashscope.aliyuncs.com/compatible-mode/v1", True),
        ("azure", "https://anything.example.com", True),
        ("ollama", "http://localhost:11434", True),
        ("ollama", "https://ollama.com", False),
    ],
)
def test_a_vendors_own_address_is_told_from_a_gateways(vendor, base_url, own):
    """Regions count as the vendor's own, gateways do not."""
    assert is_own(Endpoint(vendor, "m", base_url)) is own


@pytest.mark.parametrize(
    ("vendor", "slots"),
    [("ollama", 1), ("ollama-v1", 1), ("llama.cpp", 4), ("lm-studio", 4), ("vllm", 16), ("groq", 16)],
)
def test_a_server_is_asked_for_what_it_does_at_once(vendor, slots):
    """Local servers get as many requests as they work on by default."""
    profile = PROFILES[vendor]
    assert default_concurrency(profile, profile.base_url) == slots
