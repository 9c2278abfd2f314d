"""What a model refuses is learned at the price of a few requests, said, and known to the next run; over HTTP."""

from __future__ import annotations

import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import registry
from batchkit._playground import Server
from batchkit._playground.wires import VENDORS

SLOTS = 4
FRAME = pd.DataFrame({"text": [f"row {row}" for row in range(24)]})


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Begin as a new process does."""
    monkeypatch.setattr(registry, "_known", {})


def first(text, labels):
    """Answer with the first label."""
    return labels[0] if labels else "yes"


def serve(speaker, **settings):
    """Describe a server of a dialect or of a vendor."""
    if speaker in VENDORS:
        return bk.playground(answer=first, server=Server(vendor=speaker, **settings))
    return bk.playground(answer=first, server=Server(speaker, **settings))


def label(provider):
    """Label the rows, without repetitions, and return the run."""
    FRAME.llm.classify("text", ["yes", "no"], route=provider, progress=False)
    return bk.last_run()


CASES = [
    # Who, which model, what it refuses, what the user set, what is said about it, and in how many steps it is learned.
    ("openai", "gpt-9", ["temperature"], {"temperature": 0.0}, "without your temperature=0.0", 1),
    ("openai", "gpt-6-luna", ["reasoning_effort"], {}, "without reasoning_effort", 1),
    ("openai", "gpt-6-luna", ["reasoning_effort"], {"reasoning": "low"}, "without your reasoning='low'", 1),
    ("openai", "m", ["max_completion_tokens"], {}, "with max_tokens as its output cap", 1),
    ("openai", "gpt-9", ["json_schema"], {}, "through a forced tool", 1),
    ("openai", "gpt-9", ["response_format"], {}, "through a forced tool", 1),
    ("openai", "gpt-9", ["json_schema", "tools"], {}, "in JSON mode, with the schema in the prompt", 2),
    ("openai", "gpt-9", ["response_format", "tools"], {}, "as plain text, with the schema in the prompt", 3),
    (
        "openai",
        "m",
        ["temperature", "json_schema", "max_completion_tokens"],
        {"temperature": 1.0},
        "without your temperature=1.0",
        3,
    ),
    ("responses", "gpt-9", ["temperature"], {"temperature": 0.0}, "without your temperature=0.0", 1),
    ("responses", "gpt-6-luna", ["reasoning"], {}, "without reasoning.effort", 1),
    ("responses", "gpt-6-luna", ["effort"], {"reasoning": "high"}, "without your reasoning='high'", 1),
    ("responses", "gpt-9", ["store"], {}, "without store", 1),
    ("responses", "gpt-9", ["json_schema"], {}, "through a forced tool", 1),
    ("anthropic", "claude-9", ["temperature"], {"temperature": 0.5}, "without your temperature=0.5", 1),
    ("anthropic", "claude-haiku-5-5", ["thinking"], {}, "without thinking", 1),
    ("anthropic", "claude-opus-5-5", ["effort"], {}, "without output_config.effort", 1),
    ("anthropic", "claude-9", ["json_schema"], {}, "through a forced tool", 1),
    ("anthropic", "claude-9", ["output_config", "tools"], {}, "as plain text", 2),
    ("gemini", "gemini-9", ["temperature"], {"temperature": 0.0}, "without your temperature=0.0", 1),
    ("gemini", "gemini-2.5-flash", ["thinkingConfig"], {}, "without generationConfig.thinkingConfig", 1),
    ("gemini", "gemini-3.5-flash-lite", ["thinkingLevel"], {"reasoning": "high"}, "without your reasoning='high'", 1),
    ("gemini", "gemini-9", ["responseJsonSchema"], {}, "in JSON mode", 1),
    ("gemini", "gemini-9", ["responseMimeType"], {}, "as plain text", 2),
    ("ollama", "qwen3", ["think"], {}, "without think", 1),
    ("ollama", "qwen3", ["think"], {"reasoning": "high"}, "without your reasoning='high'", 1),
    ("ollama", "qwen3", ["json_schema"], {}, "in JSON mode", 1),
    ("ollama", "qwen3", ["temperature"], {"temperature": 0.0}, "without your temperature=0.0", 1),
    ("azure", "my-deployment", ["max_completion_tokens"], {}, "with max_tokens as its output cap", 1),
    ("deepseek", "deepseek-v4-flash", ["tools"], {}, "in JSON mode", 1),
    ("deepseek", "deepseek-v4-flash", ["thinking"], {"reasoning": "on"}, "without your reasoning='on'", 1),
    ("groq", "llama-3.3-70b-versatile", ["json_schema"], {}, "through a forced tool", 1),
    ("llama.cpp", "m", ["chat_template_kwargs"], {}, "without chat_template_kwargs", 1),
    ("lm-studio", "m", ["json_schema"], {}, "as plain text", 1),
    ("mistral", "mistral-small-latest", ["response_format"], {}, "through a forced tool", 1),
    ("mistral", "mistral-small-latest", ["temperature"], {"temperature": 0.0}, "without your temperature=0.0", 1),
    ("ollama-v1", "qwen3", ["reasoning_effort"], {}, "without reasoning_effort", 1),
    ("openrouter", "some/model", ["provider"], {}, "without provider", 1),
    ("openrouter", "some/model", ["json_schema"], {}, "through a forced tool", 1),
    ("qwen", "qwen3.8-max", ["json_schema"], {}, "in JSON mode", 1),
    ("qwen", "qwen-plus", ["enable_thinking"], {}, "without enable_thinking", 1),
    ("together", "m", ["json_schema"], {}, "through a forced tool", 1),
    ("vllm", "m", ["chat_template_kwargs"], {"reasoning": "on"}, "without your reasoning='on'", 1),
]


@pytest.mark.parametrize(
    ("speaker", "model", "refuses", "settings", "says", "steps"),
    [pytest.param(*case, id=f"{case[0]} {'+'.join(case[2])} {''.join(case[3])}") for case in CASES],
)
def test_what_a_model_refuses_is_learned(speaker, model, refuses, settings, says, steps):
    """All rows are answered, few requests are wasted, what changed is said, and the next run knows it."""
    with serve(speaker, refuses=refuses) as play:
        settings = {"max_concurrency": SLOTS, "max_retries": 0, **settings}
        run = label(play.server.provider(model, **settings))
        assert run.frame["label"].tolist() == ["yes"] * len(FRAME)
        wasted = play.server.counts["refused"]
        assert steps <= wasted <= steps * max(3, SLOTS)
        assert says in run.summary["adapted"]["server"]
        assert run.summary["adapted"]["server"].count("From now on") == steps

        again = label(play.server.provider(model, **settings, name="again"))
        assert again.frame["label"].tolist() == ["yes"] * len(FRAME)
        assert play.server.counts["refused"] == wasted
        assert again.summary["adapted"].isna().all()
        assert play.server.violations == []


@pytest.mark.parametrize(
    ("settings", "refuses", "advice"),
    [
        ({"extra_body": {"temperature": 2.0}}, ["temperature"], "Leave 'temperature' out of extra_body="),
        ({"extra_body": {"response_format": {"type": "text"}}}, ["response_format"], "Leave 'response_format' out"),
    ],
)
def test_what_the_user_wrote_into_the_body_is_not_taken_out(settings, refuses, advice):
    """A field of extra_body that is refused stops the provider and is named: the user's own body is not changed."""
    with serve("openai", refuses=refuses) as play:
        provider = play.server.provider("gpt-9", max_concurrency=SLOTS, **settings)
        with pytest.warns(bk.BatchkitWarning, match=advice):
            run = label(provider)
        assert play.server.counts["refused"] == max(3, SLOTS)
    assert set(run.frame["label_error"]) == {"config"}
    assert run.summary["adapted"].isna().all()


def test_a_schema_that_is_always_too_complex_is_no_loop():
    """A complaint that nothing helps against ends at the bottom of the ladder, after a few requests."""
    with serve("anthropic", script=lambda text, nth: "schema_too_complex") as play:
        with pytest.warns(bk.BatchkitWarning, match="too complex"):
            run = label(play.server.provider(max_concurrency=SLOTS))
        assert set(run.frame["label_error"]) == {"config"}
        assert play.server.counts["schema_too_complex"] <= 3 * max(3, SLOTS)


def test_a_schema_that_is_too_complex_once_is_asked_for_otherwise():
    """A vendor that cannot compile the schema gets it as a tool's, and all rows their answers."""
    with serve("anthropic", script=["schema_too_complex"]) as play:
        run = label(play.server.provider(max_concurrency=1, max_retries=0))
        assert play.server.counts == {"schema_too_complex": 1, "answered": len(FRAME)}
    assert run.frame["label"].tolist() == ["yes"] * len(FRAME)


def test_providers_of_one_model_learn_together():
    """What one provider learned, another one of the same model and address knows, within a run and after it."""
    with serve("openai", refuses=["json_schema"]) as play:
        one, two = (play.server.provider("m", name=name, max_concurrency=SLOTS) for name in ("one", "two"))
        run = label(bk.balance(one, two))
        assert run.frame["label"].tolist() == ["yes"] * len(FRAME)
        assert play.server.counts["refused"] <= max(3, SLOTS)
        assert run.summary["adapted"].notna().any()


def test_models_of_one_server_are_learned_one_by_one():
    """What one model refuses says nothing about another at the same address."""
    with serve("openai", refuses=["json_schema"]) as play:
        for model in ("m", "n"):
            wasted = play.server.counts["refused"]
            label(play.server.provider(model, max_concurrency=SLOTS))
            assert 1 <= play.server.counts["refused"] - wasted <= max(3, SLOTS)
