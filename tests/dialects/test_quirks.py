"""From a refused request to the next thing to try."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._dialects import DIALECTS
from batchkit._dialects.errors import read_failure
from batchkit._dialects.profiles import PROFILES, ladder
from batchkit._dialects.quirks import changes, rung_of
from batchkit.records import Brief, Endpoint, Failure, Question, Quirks, Scope

SCHEMA = {
    "type": "object",
    "properties": {"label": {"type": "string", "enum": ["bug", "billing"]}, "confidence": {"type": "number"}},
    "required": ["label", "confidence"],
    "additionalProperties": False,
}
BRIEF = Brief("You label tickets.", ("bug", "billing"), SCHEMA, max_output_tokens=64)
LONG_BRIEF = Brief("x" * 3000, ("bug", "billing"), SCHEMA, max_output_tokens=64)
MODELS = {
    "openai": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "gemini": "gemini-3.5-flash-lite",
    "ollama": "qwen3",
    "groq": "openai/gpt-oss-20b",
}


def endpoint(vendor, model=None, **settings):
    """Build an endpoint of a vendor."""
    base_url = PROFILES[vendor].base_url or "https://h/v1"
    return Endpoint(vendor, model or MODELS.get(vendor, "m"), base_url, **settings)


def refused(message, param=None, status=400):
    """Build the failure of a request that a provider calls invalid."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": None}}
    return read_failure(status, {}, json.dumps(body).encode(), 0.0)


def adapt(vendor, failure, quirks=Quirks(), brief=BRIEF, dialect=None, **settings):  # noqa: B008
    """Ask a vendor's dialect what to try next."""
    at = endpoint(vendor, **settings)
    return DIALECTS[dialect or PROFILES[vendor].dialect].adapt(failure, at, quirks, brief)


def body(vendor, quirks, brief=BRIEF, dialect=None, **settings):
    """Build what is sent then."""
    return DIALECTS[dialect or PROFILES[vendor].dialect].prepare(brief, endpoint(vendor, **settings), quirks)


@pytest.mark.parametrize(
    ("vendor", "dialect", "message", "param", "rung"),
    [
        ("openai", "openai", "Invalid schema for response_format 'answer'", "response_format", "tool"),
        ("groq", "openai", "This model does not support response format `json_schema`.", "response_format", "tool"),
        ("lm-studio", "openai", "'response_format.type' must be 'text'", None, "text"),
        (
            "vllm",
            "openai",
            "The provided JSON schema contains features not supported by xgrammar grammar",
            None,
            "tool",
        ),
        ("openai", "responses", "Invalid parameter", "text.format.schema", "tool"),
        ("openai", "responses", "Invalid parameter", "text", "tool"),
        ("anthropic", "anthropic", "The compiled grammar is too large", None, "tool"),
        ("anthropic", "anthropic", "output_config: Extra inputs are not permitted", "output_config", "tool"),
        ("anthropic", "anthropic", "`output_config` is not supported by this model.", None, "tool"),
        ("gemini", "gemini", 'Unknown name "responseJsonSchema" at generation_config', "generation_config", "json"),
        ("gemini", "gemini", "schema produces a constraint that has too many states", None, "json"),
        ("ollama", "ollama", "invalid format: the grammar does not parse", None, "json"),
    ],
)
def test_a_refused_schema_is_asked_for_in_another_way(vendor, dialect, message, param, rung):
    """The next way on the vendor's ladder is tried."""
    quirks = adapt(vendor, refused(message, param), dialect=dialect)
    assert quirks is not None
    assert quirks == Quirks(rung=rung)
    assert body(vendor, quirks, dialect=dialect) != body(vendor, Quirks(), dialect=dialect)


def test_a_gateway_without_a_provider_for_a_schema_gets_less():
    """OpenRouter's 404 about parameters is no missing model."""
    failure = refused("No endpoints found that can handle the requested parameters.", status=404)
    assert adapt("openrouter", failure) == Quirks(rung="tool")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_last_rung_is_plain_text_with_the_schema_in_words(dialect):
    """At the bottom of the ladder nothing but the prompt says what is wanted, in JSON mode both do."""
    vendor = next(name for name, profile in PROFILES.items() if dialect in (profile.dialect, "responses"))
    for rung in ("json", "text"):
        sent = json.dumps(body(vendor, Quirks(rung=rung), dialect=dialect))
        assert "JSON schema" in sent
        assert "confidence" in sent
        assert "json_schema" not in sent
        assert '"tool_choice"' not in sent


@pytest.mark.parametrize(
    ("vendor", "settings", "rungs"),
    [
        ("openai", {}, ("schema", "tool", "json", "text")),
        ("openai", {"reasoning": "low"}, ("schema", "json", "text")),
        ("anthropic", {}, ("schema", "tool", "text")),
        ("anthropic", {"model": "claude-3-5-haiku-20241022"}, ("tool", "text")),
        ("anthropic", {"model": "claude-opus-5-5"}, ("schema", "text")),
        ("deepseek", {}, ("tool", "json", "text")),
        ("deepseek", {"reasoning": "on"}, ("json", "text")),
        ("qwen", {"model": "qwen-plus"}, ("json", "text")),
        ("qwen", {"model": "qwen3.8-max"}, ("schema", "json", "text")),
        ("lm-studio", {}, ("schema", "text")),
    ],
)
def test_each_vendor_has_its_ladder(vendor, settings, rungs):
    """The first way is the best that is known to work, and no tool is forced on a model that is to think."""
    at = endpoint(vendor, **settings)
    assert ladder(at) == rungs
    assert rung_of(BRIEF, at, Quirks()) == rungs[0]
    assert rung_of(Brief("free text"), at, Quirks()) is None


@pytest.mark.parametrize(
    ("vendor", "message", "param", "field"),
    [
        ("openai", "Unsupported parameter: 'max_completion_tokens'", "max_completion_tokens", "max_tokens"),
        (
            "openai-compatible",
            "Unsupported parameter: 'max_tokens' is not supported here. Use 'max_completion_tokens' instead.",
            None,
            "max_completion_tokens",
        ),
        ("openai-compatible", "max_tokens: Extra inputs are not permitted", None, "max_completion_tokens"),
    ],
)
def test_the_cap_has_another_name(vendor, message, param, field):
    """A cap that is refused under one name is sent under the other, once."""
    failure = refused(message, param)
    quirks = adapt(vendor, failure)
    assert quirks == Quirks(cap_field=field)
    sent = body(vendor, quirks)
    assert sent[field] == 64
    assert len({"max_tokens", "max_completion_tokens"} & sent.keys()) == 1
    assert adapt(vendor, failure, quirks) is None


@pytest.mark.parametrize("param", ["max_tokens", None])
def test_a_cap_that_is_too_large_keeps_its_name(param):
    """A complaint about the size of the cap is none about its name."""
    message = "max_tokens is too large: 200000. This model supports at most 16384 completion tokens."
    assert adapt("openai-compatible", refused(message, param)) is None


@pytest.mark.parametrize(
    ("vendor", "settings", "message", "param", "dropped"),
    [
        ("openai", {"temperature": 0.0}, "Unsupported value: 'temperature'", "temperature", "temperature"),
        ("openai", {"temperature": 0.0}, "temperature is not supported with this model", None, "temperature"),
        ("anthropic", {"temperature": 0.0}, "`temperature` is deprecated for this model.", None, "temperature"),
        ("anthropic", {}, "thinking.type: 'disabled' is not supported", "thinking.type", "thinking"),
        ("gemini", {"temperature": 0.0}, "bad", "generation_config.temperature", "generationConfig.temperature"),
        (
            "gemini",
            {"model": "gemini-2.5-flash"},
            "Budget 0 is invalid. This model only works in thinking mode.",
            None,
            "generationConfig.thinkingConfig",
        ),
        ("ollama", {}, '"llama3.2" does not support thinking', None, "think"),
        ("deepseek", {}, "unknown field `thinking`", None, "thinking"),
        ("qwen", {}, "The parameter enable_thinking is invalid", None, "enable_thinking"),
        ("vllm", {}, "chat_template is not supported for Mistral tokenizers.", None, "chat_template_kwargs"),
        ("mistral", {"reasoning": "low"}, "Extra inputs are not permitted", "reasoning_effort", "reasoning_effort"),
        ("openrouter", {"reasoning": "off"}, "Reasoning is mandatory for this endpoint", None, None),
    ],
)
def test_a_refused_parameter_is_left_out(vendor, settings, message, param, dropped):
    """A field that a model refuses is not sent again, or not with that value."""
    quirks = adapt(vendor, refused(message, param), **settings)
    assert quirks is not None
    if dropped is not None:
        assert quirks == Quirks(dropped=frozenset({dropped}))
    assert body(vendor, quirks, **settings) != body(vendor, Quirks(), **settings)
    assert changes(Quirks(), quirks, endpoint(vendor, **settings)).startswith("From now on this model is asked without")


@pytest.mark.parametrize(
    ("settings", "path", "said"),
    [
        ({"temperature": 0.2}, "temperature", "without your temperature=0.2."),
        ({"reasoning": "high"}, "reasoning_effort", "without your reasoning='high'."),
        ({}, "reasoning_effort=none", "without reasoning_effort='none'."),
        ({}, "thinking", "without thinking."),
    ],
)
def test_what_the_user_asked_for_is_not_dropped_in_silence(settings, path, said):
    """The sentence about a change names the user's own setting with its value."""
    quirks = Quirks(dropped=frozenset({path}))
    assert changes(Quirks(), quirks, endpoint("openai", **settings)) == f"From now on this model is asked {said}"


def test_a_change_of_form_and_cap_is_told():
    """Another form and another name of the cap are said in one sentence, and no change in none."""
    at = endpoint("openai")
    said = changes(Quirks(), Quirks(rung="json", cap_field="max_tokens"), at)
    assert said == (
        "From now on this model is asked with max_tokens as its output cap "
        "and in JSON mode, with the schema in the prompt."
    )
    assert changes(Quirks(), Quirks(), at) == ""


def test_an_effort_is_raised_until_the_model_takes_it():
    """The lowest effort that a model names as its own is tried, then none at all, with room to think."""
    first = refused(
        "Unsupported value: 'reasoning_effort' does not support 'none' with this model. "
        "Supported values are: 'low', 'medium', and 'high'.",
        "reasoning_effort",
    )
    quirks = adapt("openai", first)
    sent = body("openai", quirks)
    assert (sent["reasoning_effort"], sent["max_completion_tokens"]) == ("low", 64 + 4096)
    quirks = adapt("openai", refused("Unrecognized request argument supplied", "reasoning_effort"), quirks)
    sent = body("openai", quirks)
    assert "reasoning_effort" not in sent
    assert sent["max_completion_tokens"] == 64 + 4096


def test_gemini_thinks_a_little_where_it_cannot_think_less():
    """A level of thought that is refused is followed by the next."""
    quirks = adapt("gemini", refused("Thinking level MINIMAL is not supported for this model."))
    assert body("gemini", quirks)["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "LOW"}


def test_what_nobody_asked_for_is_changed_first():
    """A complaint about temperature and reasoning gives up our way to switch it off, not the user's temperature."""
    failure = refused("temperature and reasoning_effort cannot be set together")
    quirks = adapt("openai", failure, temperature=0.5)
    assert quirks is not None
    assert quirks.dropped == {"reasoning_effort"}


@pytest.mark.parametrize(
    ("message", "dropped"),
    [
        ("`output_config.effort` is not supported by this model.", {"output_config.effort"}),
        ("effort: 'low' is not supported by this model.", {"output_config.effort=low"}),
        (
            "effort: Input should be 'medium' or 'high'",
            {"output_config.effort=none", "output_config.effort=minimal", "output_config.effort=low"},
        ),
    ],
)
def test_a_field_and_a_value_are_told_apart(message, dropped):
    """A complaint without a word about values takes the field out at once, one about values tries the next of them."""
    quirks = adapt("anthropic", refused(message), model="claude-opus-5-5")
    assert quirks is not None
    assert quirks.dropped == dropped


@pytest.mark.parametrize(
    ("vendor", "settings", "learned", "rung"),
    [
        ("anthropic", {"reasoning": "low"}, "tool", "text"),
        ("anthropic", {"model": "claude-opus-5-5"}, "tool", "text"),
        ("deepseek", {"reasoning": "on"}, "tool", "json"),
        ("openai", {"reasoning": "low"}, "tool", "json"),
        ("openai", {}, "tool", "tool"),
        ("qwen", {"model": "qwen-plus"}, "schema", "json"),
        ("anthropic", {}, "json", "text"),
    ],
)
def test_what_was_learned_under_another_setting_is_not_forced_on_this_one(vendor, settings, learned, rung):
    """A way to ask that these settings bar is not taken because it was learned without them: the next lower one is."""
    assert rung_of(BRIEF, endpoint(vendor, **settings), Quirks(rung=learned)) == rung


@pytest.mark.parametrize(
    ("settings", "failure"),
    [
        ({"extra_body": {"temperature": 2}}, refused("no", "temperature")),
        ({"extra_body": {"response_format": {"type": "x"}}}, refused("no", "response_format")),
        ({"extra_body": {"max_tokens": 9}}, refused("unsupported parameter", "max_tokens")),
        ({}, refused("no", "messages[1].content")),
        ({}, refused("no", "temperature")),
        ({}, refused("The model `x` does not exist: response_format", status=404)),
        ({}, refused("response_format", status=500)),
        ({}, Failure("auth", "HTTP 401 response_format", Scope.PROVIDER, status=401)),
        ({}, Failure("connection", "response_format", Scope.TRANSIENT)),
        ({}, refused("something is wrong")),
        ({}, refused("maximum context length; reduce max_tokens")),
    ],
)
def test_what_cannot_be_helped_is_left_alone(settings, failure):
    """What the user put into extra_body, what was not sent, and other failures are no reason to ask otherwise."""
    assert adapt("openai", failure, **settings) is None


def test_free_text_has_no_form_to_change():
    """Without a schema there is nothing to go down from."""
    assert adapt("openai", refused("no", "response_format"), brief=Brief("Translate.")) is None


def test_a_gateway_that_caches_nothing_is_not_asked_to():
    """A refused cache mark is left out, and only where there was one."""
    failure = refused("system.0.cache_control: Extra inputs are not permitted")
    quirks = adapt("anthropic", failure, brief=LONG_BRIEF)
    assert quirks == Quirks(dropped=frozenset({"cache_control"}))
    assert "cache_control" not in json.dumps(body("anthropic", quirks, LONG_BRIEF))
    assert adapt("anthropic", failure, quirks, LONG_BRIEF) is None
    assert adapt("anthropic", failure) is None


def test_a_longer_reply_keeps_the_other_name_of_the_cap():
    """A question with more room enlarges the cap under whatever name it goes."""
    at = endpoint("openai")
    prepared = DIALECTS["openai"].prepare(BRIEF, at, Quirks(cap_field="max_tokens"))
    assert DIALECTS["openai"].encode(prepared, Question(BRIEF, "row", room=4), at)["max_tokens"] == 256


WORDS = st.sampled_from(
    [
        "response_format", "json_schema", "tools", "tool_choice", "temperature", "reasoning_effort", "reasoning",
        "thinking", "max_tokens", "max_completion_tokens", "provider", "output_config", "effort", "text.format",
        "generation_config", "thinking_level", "format", "think", "enable_thinking", "store", "unsupported parameter",
        "'low'", "'medium'", "cache_control", "messages",
    ]
)  # fmt: skip


@given(
    vendor=st.sampled_from(sorted(PROFILES)),
    complaints=st.lists(st.tuples(st.lists(WORDS, max_size=3).map(" ".join), st.none() | WORDS), max_size=30),
    reasoning=st.sampled_from([None, "off", "low"]),
    temperature=st.none() | st.just(0.0),
    responses=st.booleans(),
)
def test_learning_comes_to_an_end(vendor, complaints, reasoning, temperature, responses):
    """Whatever is refused in whatever order, each step is new and sends another body, and there are few."""
    at = endpoint(vendor, reasoning=reasoning, temperature=temperature)
    dialect = DIALECTS["responses" if responses and vendor == "openai" else PROFILES[vendor].dialect]
    quirks, seen = Quirks(), [Quirks()]
    for message, param in complaints:
        further = dialect.adapt(refused(message, param), at, quirks, LONG_BRIEF)
        if further is None:
            continue
        assert further not in seen
        assert further.dropped >= quirks.dropped
        assert dialect.prepare(LONG_BRIEF, at, further) != dialect.prepare(LONG_BRIEF, at, quirks)
        seen.append(further)
        quirks = further
    assert len(seen) <= 15
