"""A server's settings are checked when they are written, and what a running one saw can be read."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace

import pytest

from batchkit._playground.server import Log, Request, RunningServer, Server
from batchkit.errors import ConfigError


def _request(arrived: float, fate: str = "answered", status: int | None = 200) -> Request:
    return Request("/v1/messages", fate, status, "row", arrived, arrived + 1, 0.0, 1, 1, 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dialect": "cohere"}, "dialect='cohere'"),
        ({"latency": -1}, "latency=-1"),
        ({"latency": "0.1"}, "latency='0.1'"),
        ({"latency": math.inf}, "latency=inf"),
        ({"latency": math.nan}, "latency=nan"),
        ({"jitter": True}, "jitter=True"),
        ({"server_errors": 1.5}, "server_errors=1.5"),
        ({"hangs": -0.1}, "hangs=-0.1"),
        ({"drops": 0.6, "garbage": 0.6}, "more than 1"),
        ({"rpm": 0}, "rpm=0"),
        ({"rpm": "60"}, "rpm='60'"),
        ({"rpm": math.inf}, "rpm=inf"),
        ({"rpm": True}, "rpm=True"),
        ({"tpm": 0}, "tpm=0"),
        ({"tpm": -1}, "tpm=-1"),
        ({"tpm": math.nan}, "tpm=nan"),
        ({"tpm": "60"}, "tpm='60'): write tokens per minute"),
        ({"limit_headers": 1}, "limit_headers=1"),
        ({"limit_headers": "yes"}, "limit_headers='yes'"),
        ({"max_concurrency": 0}, "max_concurrency=0"),
        ({"max_concurrency": 2.0}, "max_concurrency=2.0"),
        ({"max_concurrency": True}, "max_concurrency=True"),
        ({"api_key": ""}, "api_key"),
        ({"models": "gpt"}, "models='gpt'"),
        ({"models": []}, "models="),
        ({"models": [1]}, "models="),
    ],
)
def test_settings_out_of_range_are_refused(settings, says):
    """A setting that cannot be meant is a ConfigError that names it and its value."""
    with pytest.raises(ConfigError, match=re.escape(says)):
        Server(**settings)


def test_an_unknown_setting_is_refused():
    """A setting that does not exist is never ignored."""
    with pytest.raises(TypeError, match="latencies"):
        Server(latencies=1)


def test_the_repr_shows_what_was_set_but_no_key():
    """A server shows its settings, and never its key."""
    assert repr(Server("anthropic", latency=0.2, api_key="sk-secret")) == "Server(dialect='anthropic', latency=0.2)"


def test_a_record_is_kept():
    """Requests are listed in order of arrival and counted by fate and status, with the peaks."""
    log = Log()
    running = RunningServer("fast", Server(), "http://127.0.0.1:1", log)
    log.enter(connections=1)
    log.enter(connections=2)
    assert running.in_flight == 2
    log.violations.append("HTTP 400: no")
    assert running.violations == ["HTTP 400: no"]
    assert running.violations is not running.violations
    log.leave(_request(2.0))
    log.leave(_request(1.0, "drop", None))
    log.enter(connections=1)
    assert [request.arrived for request in running.requests] == [1.0, 2.0]
    assert running.counts == {"answered": 1, "drop": 1}
    assert running.statuses == {200: 1, None: 1}
    assert (running.in_flight, running.peak_in_flight, running.peak_connections) == (1, 2, 2)
    assert "2 requests" in repr(running)


@pytest.mark.parametrize(
    ("server", "kind", "base_url", "settings"),
    [
        (Server("openai"), "OpenAI", "http://127.0.0.1:1/v1", {}),
        (Server("responses"), "OpenAI", "http://127.0.0.1:1/v1", {"endpoint": "responses"}),
        (Server("anthropic"), "Anthropic", "http://127.0.0.1:1", {}),
        (Server("gemini"), "Gemini", "http://127.0.0.1:1", {}),
        (Server("ollama"), "Ollama", "http://127.0.0.1:1", {}),
        (Server(vendor="groq"), "OpenAICompatible", "http://127.0.0.1:1/openai/v1", {"vendor": "groq"}),
    ],
)
def test_a_provider_is_ready_made(monkeypatch, server, kind, base_url, settings):
    """The provider speaks the server's dialect, knows its URL, bears its name, and says whose playground it is for."""
    made = []
    fake = SimpleNamespace(**{kind: lambda model, **given: made.append((model, given))})
    monkeypatch.setattr("batchkit._playground.server.importlib.import_module", lambda name: fake)
    running = RunningServer("mine", server, "http://127.0.0.1:1", Log())
    assert running.base_url == base_url
    running.provider()
    running.provider(headers={"X-Team": "7"})
    known = {"name": "mine", "api_key": "playground", "base_url": base_url, "max_concurrency": None, **settings}
    visit = made[0][1]["headers"]
    assert list(visit) == ["X-Playground"]
    assert made == [
        ("playground", {**known, "headers": visit}),
        ("playground", {**known, "headers": {**visit, "X-Team": "7"}}),
    ]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_provider_is_real(dialect):
    """The provider that is made is one that a user could have made."""
    provider = RunningServer("mine", Server(dialect), "http://127.0.0.1:1", Log()).provider()
    assert (provider.name, provider.model) == ("mine", "playground")


def test_a_provider_takes_settings():
    """Settings given to provider() win over those filled in."""
    running = RunningServer("mine", Server(), "http://127.0.0.1:1", Log())
    provider = running.provider("big", name="other", max_concurrency=3)
    assert (provider.name, provider.model, provider.limits.max_concurrency) == ("other", "big", 3)
