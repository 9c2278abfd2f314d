"""Providers: what may be given, what is found, and what is never shown."""

from __future__ import annotations

import copy
import functools
import inspect
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest

import batchkit as bk
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.providers import Provider, resolve

SECRET = "sk-very-secret-0123456789"
LOCAL = "http://localhost:8000/v1"
TASK = Classify(LabelSet.of(["a", "b"]))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder: no `.env` of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def http(kind, **settings):
    if kind is bk.OpenAICompatible:
        settings.setdefault("base_url", LOCAL)
    return kind("some-model", **settings)


def answer(prompt):
    return "a"


HTTP = [bk.OpenAI, bk.Anthropic, bk.OpenAICompatible]
every_http = pytest.mark.parametrize("kind", HTTP)
HTTP_KEYWORDS = [
    "name", "api_key", "base_url", "endpoint", "max_concurrency", "rpm", "tpm", "timeout", "deadline", "max_retries",
    "instructions", "temperature", "max_output_tokens", "reasoning", "headers", "extra_body", "price",
]  # fmt: skip


# ---- keywords ---------------------------------------------------------------------------------


@every_http
def test_the_same_keywords_everywhere(kind):
    """All HTTP providers take the model first and the same keywords, by name only."""
    parameters = inspect.signature(kind).parameters
    own = ["vendor"] if kind is bk.OpenAICompatible else []
    assert list(parameters) == ["model", *own, *HTTP_KEYWORDS]
    assert {parameters[name].kind for name in HTTP_KEYWORDS} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["model"].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: bk.OpenAI("m", max_concurency=8), "OpenAI has no keyword 'max_concurency'.*'max_concurrency'"),
        (lambda: bk.Anthropic("m", time_out=8), "Anthropic has no keyword 'time_out'.*'timeout'"),
        (lambda: bk.OpenAICompatible("m", url=LOCAL), "OpenAICompatible has no keyword 'url'.*'base_url'"),
        (lambda: bk.FunctionProvider(answer, batch=True), "FunctionProvider has no keyword 'batch'.*'batched'"),
        (lambda: bk.FunctionProvider(answer, temperature=0), "FunctionProvider has no keyword 'temperature'"),
        (lambda: bk.Embedded(nam="x"), "Embedded has no keyword 'nam'.*'name'"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(make, meant):
    """A setting nobody knows is a `TypeError` and a `ConfigError`, never ignored."""
    with pytest.raises(TypeError, match=meant) as caught:
        make()
    assert isinstance(caught.value, bk.ConfigError)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bk.OpenAICompatible("m"), "OpenAICompatible needs base_url=, for example base_url='http://localhost"),
        (lambda: bk.OpenAICompatible("m", vendor="azure"), "base_url='https://RESOURCE.openai.azure.com/openai/v1'."),
        (lambda: resolve("openai"), "Put the model behind it: 'openai:MODEL'."),
        (lambda: resolve("groq:"), "Put the model behind it: 'groq:MODEL'."),
        (lambda: resolve("openai/gpt-4o"), "Write 'openai:gpt-4o'."),
        (lambda: resolve("opnai:gpt-4o"), "Did you mean 'openai'?"),
        (lambda: resolve("gpt-4o"), "There is 'openai', 'anthropic'"),
    ],
)
def test_what_is_missing_is_said_with_an_example(make, says):
    """An address or a spec that lacks something is refused with what it would look like."""
    with pytest.raises(bk.ConfigError, match=re.escape(says)):
        make()


WRONG = {
    "name": ["", "  ", 5],
    "api_key": ["", "  ", 5, "sk-\u2026", "sk-a\nb"],
    "base_url": ["", "  ", 5, "localhost:8000", "ftp://host", "https://", "https://host/v1?key=1"],
    "endpoint": ["", "chat", 5],
    "max_concurrency": [0, -1, 1.5, 8.0, True, "8", math.inf],
    "rpm": [0, -1, True, "60", math.inf, math.nan],
    "tpm": [0, -1, True, "60", math.inf, math.nan],
    "timeout": [0, -1, True, "60", math.inf, math.nan, None],
    "deadline": [0, -1, True, "60", math.inf, math.nan, None],
    "max_retries": [-1, 1.5, True, "5", None],
    "instructions": [5, ["be quick"], b"be quick"],
    "temperature": [-0.1, True, "0", math.inf, math.nan],
    "max_output_tokens": [0, -1, 1.5, True, "64"],
    "reasoning": ["", "  ", 5, True, False],
    "headers": ["x-a: b", ["x-a"], {"x-a": 5}, {5: "x"}, {"": "x"}, {"x-a": "b\r\nc"}, {"x\n": "b"}],
    "price": [1, "cheap", (1,), (1, -1), {"input": 1}, {"input": 1, "output": 2, "inptu": 3}],
    "extra_body": ["x", ["x"], {"x": object()}, {5: "x"}, {"x": {1, 2}}],
}


@every_http
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_that_cannot_be_is_refused(kind, name, value):
    """Each keyword refuses bad values when the provider is made, naming provider and keyword."""
    words = {"headers": "header"}
    with pytest.raises(bk.ConfigError, match=words.get(name, name)) as caught:
        http(kind, **{name: value})
    assert str(caught.value).startswith(f"{kind.__name__}: ")


def test_every_keyword_is_tried():
    """The table of bad values covers all keywords of HTTP providers."""
    assert sorted(WRONG) == sorted(HTTP_KEYWORDS)


@every_http
@pytest.mark.parametrize("model", ["", "  ", None, 5])
def test_a_model_is_a_text(kind, model):
    """A model must be named."""
    with pytest.raises(bk.ConfigError, match="model must be a text"):
        kind(model, base_url=LOCAL)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"loop": "mine"}, "loop='mine'"),
        ({"max_concurrency": 0}, "max_concurrency=0"),
        ({"rpm": 0}, "rpm=0"),
        ({"timeout": None}, "timeout=None"),
        ({"deadline": "x"}, "deadline='x'"),
        ({"max_retries": -1}, "max_retries=-1"),
        ({"instructions": 5}, "instructions"),
        ({"batched": True, "rows_per_request": 0}, "rows_per_request=0"),
        ({"batched": True, "rows_per_request": "8"}, "rows_per_request='8'"),
        ({"rows_per_request": 8}, "rows_per_request=8 is for batched=True"),
    ],
)
def test_function_settings_that_cannot_be(settings, says):
    """A function provider refuses bad values, and a setting that would have no effect."""
    with pytest.raises(bk.ConfigError, match=says):
        bk.FunctionProvider(answer, **settings)


@pytest.mark.parametrize("fn", ["a", 5, None, ["a"]])
def test_a_function_must_be_callable(fn):
    """What cannot be called is no function provider."""
    with pytest.raises(bk.ConfigError, match="needs a function"):
        bk.FunctionProvider(fn)


@pytest.mark.parametrize("name", ["", 5])
def test_the_embedded_models_name_is_a_text(name):
    """The embedded model's only setting is checked too."""
    with pytest.raises(bk.ConfigError, match="name"):
        bk.Embedded(name=name)


def test_numbers_out_of_a_frame_are_numbers():
    """numpy's integers and floats are taken like Python's."""
    provider = bk.OpenAI("m", max_concurrency=np.int64(8), rpm=np.float64(60), temperature=np.float32(0.5))
    assert type(provider.limits.max_concurrency) is int
    assert provider.limits.max_concurrency == 8
    assert type(provider._options["temperature"]) is float


# ---- defaults ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "name", "slots", "shown"),
    [
        (bk.OpenAI("m"), "openai:m", 16, "OpenAI('m', max_concurrency=16)"),
        (bk.Anthropic("m"), "anthropic:m", 16, "Anthropic('m', max_concurrency=16)"),
        (bk.OpenAI("m", name="fast", max_concurrency=3), "fast", 3, "OpenAI('m', name='fast', max_concurrency=3)"),
        (
            bk.OpenAICompatible("m", base_url=LOCAL),
            "openai-compatible:m",
            4,
            f"OpenAICompatible('m', base_url='{LOCAL}', max_concurrency=4)",
        ),
        (
            bk.OpenAICompatible("m", base_url="https://llm.example.com"),
            "openai-compatible:m",
            16,
            "OpenAICompatible('m', base_url='https://llm.example.com', max_concurrency=16)",
        ),
        (bk.Embedded(), "embedded", 1, "Embedded()"),
        (bk.Embedded(name="small"), "small", 1, "Embedded(name='small')"),
        (bk.FunctionProvider(answer), "answer", 8, "FunctionProvider('answer')"),
        (bk.FunctionProvider(lambda prompt: "a"), "lambda", 8, "FunctionProvider('lambda')"),
        (bk.FunctionProvider(functools.partial(answer)), "partial", 8, "FunctionProvider('partial')"),
        (bk.FunctionProvider(answer, batched=True), "answer", 1, "FunctionProvider('answer', batched=True)"),
    ],
)
def test_names_slots_and_reprs(provider, name, slots, shown):
    """Providers have a default name and number of slots, and a repr that says what is not usual."""
    assert provider.name == name
    assert provider.limits.max_concurrency == slots
    assert repr(provider) == shown


def test_a_batched_async_function_has_slots_like_others():
    """Only batched sync functions are called one at a time."""

    async def answer_all(prompts):
        return ["a"] * len(prompts)

    assert bk.FunctionProvider(answer_all, batched=True).limits.max_concurrency == 8


def test_defaults_of_limits():
    """One attempt has 60 seconds, one row 600, five repetitions, and no limit per minute."""
    limits = bk.OpenAI("m").limits
    assert (limits.timeout, limits.deadline, limits.max_retries, limits.rpm, limits.tpm) == (60, 600, 5, None, None)


# ---- identity ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: bk.OpenAI("m"), bk.Embedded, lambda: bk.FunctionProvider(answer)])
def test_providers_compare_by_identity(make):
    """Two providers of the same settings are two providers."""
    one, other = make(), make()
    assert one != other
    assert one == one  # noqa: PLR0124
    assert len({one, other, one}) == 2


@pytest.mark.parametrize(
    "spelling",
    [
        "https://h.example",
        "https://h.example/",
        "https://h.example/v1",
        "https://h.example/v1/",
        " https://h.example/v1 ",
    ],
)
@pytest.mark.parametrize("kind", [bk.OpenAI, bk.Anthropic])
def test_spellings_of_a_base_url_are_one_budget(kind, spelling):
    """With or without version and slash, a base URL is the same place, and its limits are shared."""
    usual = http(kind, base_url="https://h.example/v1", api_key="k")
    assert http(kind, base_url=spelling, api_key="k")._budget() == usual._budget()


def test_budgets_are_of_place_key_and_model():
    """Another address, key or model is another budget; functions have one each."""
    budgets = [
        bk.OpenAI("m", api_key="k")._budget(),
        bk.OpenAI("n", api_key="k")._budget(),
        bk.OpenAI("m", api_key="l")._budget(),
        bk.OpenAI("m", api_key="k", base_url=LOCAL)._budget(),
        (one := bk.FunctionProvider(answer))._budget(),
        (two := bk.FunctionProvider(answer))._budget(),
    ]
    assert len(set(budgets)) == len(budgets)
    assert bk.OpenAI("m", api_key="k", rpm=5, name="x")._budget() == budgets[0]
    assert one is not two


# ---- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "variable"), [(bk.OpenAI, "OPENAI_API_KEY"), (bk.Anthropic, "ANTHROPIC_API_KEY")])
def test_a_key_is_looked_for_when_a_run_starts(kind, variable, folder, monkeypatch):
    """Argument, environment and `.env` are tried in this order at every run, and a missing key names its variable."""
    provider = kind("m")
    with pytest.raises(bk.ConfigError, match=rf"needs a key.*{variable}.*\.env.*api_key="):
        provider._lane(TASK, [], None)
    (folder / ".env").write_text(f"{variable}=from-file\n")
    assert provider._found_key() == "from-file"
    monkeypatch.setenv(variable, "from-environment")
    assert provider._found_key() == "from-environment"
    assert kind("m", api_key="  given\n")._found_key() == "given"


def test_a_local_server_needs_no_key(monkeypatch):
    """A compatible server is asked without a key, and never with a vendor's."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert http(bk.OpenAICompatible)._found_key() is None
    assert http(bk.OpenAICompatible, api_key="mine")._found_key() == "mine"


def test_a_missing_key_comes_before_anything_is_sent():
    """No row is asked of anybody when one of the route's providers has no key."""
    asked = []
    rules = bk.FunctionProvider(asked.append, name="rules")
    df = pd.DataFrame({"text": ["one", "two"]})
    with pytest.raises(bk.ConfigError, match="OPENAI_API_KEY"):
        df.llm.classify("text", ["a", "b"], route=bk.split({rules: 1, bk.OpenAI("m"): ...}), progress=False)
    assert asked == []


def test_a_setting_the_model_refuses_comes_before_anything_is_sent():
    """What a model is known to refuse is said when a run starts, not by every row."""
    provider = bk.OpenAICompatible("m", base_url=LOCAL, reasoning="low")
    with pytest.raises(bk.ConfigError, match="reasoning='low'"):
        provider._lane(TASK, [], None)


@pytest.mark.parametrize("key", ["x", "xxx", "EMPTY", "your-api-key", "ollama"])
def test_a_server_on_this_machine_takes_any_key(key):
    """What is a placeholder elsewhere is what a local server's own page says to send."""
    assert http(bk.OpenAICompatible, base_url=LOCAL, api_key=key)._found_key() == key
    if key.startswith(("x", "your")):
        with pytest.raises(bk.ConfigError, match="placeholder"):
            http(bk.OpenAICompatible, base_url="https://h.example/v1", api_key=key)


def test_a_broken_key_from_outside_is_refused_without_being_shown(monkeypatch):
    """A key that no header can carry is an error that does not show it."""
    monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET}\u2026")
    with pytest.raises(bk.ConfigError, match="Copy it again") as caught:
        bk.OpenAI("m")._lane(TASK, [], None)
    assert SECRET not in str(caught.value)


@every_http
def test_a_key_is_in_no_repr_and_no_pickle(kind):
    """Keys, and headers that may hold one, stay out of repr, str and pickle."""
    provider = http(kind, api_key=SECRET, headers={"X-Auth": SECRET})
    lane = provider._lane(TASK, [], None)
    for shown in (repr(provider), str(provider), f"{provider!s}", repr([provider]), repr(vars(lane.caller).keys())):
        assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(provider)
    for again in (pickle.loads(pickle.dumps(provider)), copy.deepcopy(provider)):
        assert repr(again) == repr(provider)
        assert again._key is None
        assert again._options["headers"] == {}


@pytest.mark.parametrize(
    "make",
    [
        lambda: bk.OpenAI("m", base_url=f"https://user:{SECRET}@host/v1"),
        lambda: bk.OpenAI("m", base_url=f"https://host/v1?key={SECRET}"),
        lambda: bk.OpenAI("m", api_key=f"{SECRET}\n{SECRET}"),
        lambda: bk.OpenAI("m", api_key=[SECRET]),
        lambda: bk.OpenAI("m", headers={"Authorization": f"{SECRET}\n"}),
        lambda: bk.OpenAI("m", headers={"Authorization": [SECRET]}),
        lambda: bk.OpenAI("m", headers=f"Authorization: {SECRET}"),
        lambda: bk.OpenAI("m", extra_body={"token": SECRET, "x": object()}),
        lambda: bk.OpenAI("m", api_key=SECRET, max_concurrency=0),
        lambda: bk.OpenAI("m", api_key=SECRET, api_kay=SECRET),
    ],
)
def test_a_key_is_in_no_error(make):
    """However wrongly a key is given, the error does not show it."""
    with pytest.raises(bk.ConfigError) as caught:
        make()
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


# ---- specs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "kind", "model"),
    [
        ("openai:gpt-6-luna", bk.OpenAI, "gpt-6-luna"),
        ("anthropic:claude-haiku-5-5", bk.Anthropic, "claude-haiku-5-5"),
        ("openai:ft:gpt-6-luna:acme", bk.OpenAI, "ft:gpt-6-luna:acme"),
    ],
)
def test_a_string_spec_is_a_provider(spec, kind, model):
    """`vendor:model` stands for the vendor's provider, whatever colons the model has."""
    provider = resolve(spec)
    assert type(provider) is kind
    assert (provider.model, provider.name) == (model, spec)


def test_a_provider_resolves_to_itself():
    """What is a provider already is not made again."""
    provider = bk.Embedded()
    assert resolve(provider) is provider
    assert isinstance(provider, Provider)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("openai", "vendor:model"),
        ("openai:", "vendor:model"),
        ("openai:  ", "model"),
        (":gpt-6-luna", "vendor:model"),
        ("", "vendor:model"),
        ("opnai:gpt-6-luna", "Did you mean 'openai'"),
        ("OpenAI:gpt-6-luna", "Did you mean 'openai'"),
        ("nobody:gpt-6-luna", "'openai', 'anthropic'"),
        (bk.OpenAI, "is no provider"),
        (answer, "is no provider"),
        (None, "is no provider"),
        (5, "is no provider"),
    ],
)
def test_what_is_no_provider_is_refused(target, says):
    """A string is a spec and never anything else, and the error shows the way."""
    with pytest.raises(bk.ConfigError, match=says):
        resolve(target)


# ---- what a provider cannot take ----------------------------------------------------------------


def test_the_embedded_model_gives_one_label():
    """`multi_label` at the embedded model is refused before anything is asked."""
    with pytest.raises(bk.ConfigError, match="multi_label=True needs a language model"):
        bk.Embedded()._lane(Classify(TASK.labels, multi_label=True), [], None)


@every_http
def test_a_providers_instructions_reach_its_brief_alone(kind):
    """Instructions of one provider are in its own system text, after the verb's."""
    task = Classify(TASK.labels, "Of the verb.")
    told = http(kind, api_key="k", instructions="Of the provider.")._lane(task, [], None).brief.system
    plain = http(kind, api_key="k")._lane(task, [], None).brief.system
    assert told.index("Of the verb.") < told.index("Of the provider.")
    assert "Of the provider." not in plain
