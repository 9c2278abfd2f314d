"""Providers: a model somewhere, what it may be asked to bear, and how it is reached."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from batchkit._dialects import DIALECTS
from batchkit._dialects.base import check_base_url
from batchkit._dialects.profiles import PROFILES, Profile, check_settings, default_concurrency
from batchkit._engine.callers import Caller, EmbeddedCaller, FunctionCaller, HttpCaller
from batchkit._engine.plan import LaneSpec
from batchkit._logic.tasks import Task
from batchkit.errors import ConfigError, nearest
from batchkit.records import Brief, Endpoint, Limits
from batchkit.settings import find_key, strict

__all__ = ["Anthropic", "Embedded", "FunctionProvider", "OpenAI", "OpenAICompatible", "Provider", "resolve"]


class Provider:
    """Something that answers questions about rows. Compared by identity."""

    name: str
    """How it is called in columns and tables; unique within a run."""
    limits: Limits
    instructions: str | None
    """Added to the task's instructions at this provider only."""
    needs_home_loop = False

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        raise NotImplementedError

    def _budget(self) -> tuple[Any, ...]:
        """Whose limits it uses: those of an object of its own, unless something outside has limits."""
        return (id(self),)

    def _refuses(self, task: Task) -> str | None:
        """Why this provider cannot take a task, None where it can."""
        return None

    def _lane(self, task: Task, home: asyncio.AbstractEventLoop | None) -> LaneSpec:
        """What the engine needs to know of it for one run."""
        reason = self._refuses(task)
        if reason is not None:
            raise ConfigError(f"{self.name}: {reason}")
        brief = task.brief(self.instructions)
        return LaneSpec(self.name, self._caller(brief, home), brief, self.limits, self._budget())


class _HttpProvider(Provider):
    """A model behind an HTTP API. What differs between vendors is a row in their profiles."""

    _vendor: str

    @strict
    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        max_concurrency: int | None = None,
        rpm: float | None = None,
        tpm: float | None = None,
        timeout: float = 60.0,
        deadline: float = 600.0,
        max_retries: int = 5,
        instructions: str | None = None,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        reasoning: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        where = type(self).__name__
        self._profile: Profile = PROFILES[self._vendor]
        self.model = _text(where, "model", model)
        self.base_url = _base_url(where, base_url or self._profile.base_url)
        self.name = _text(where, "name", name) if name is not None else f"{self._profile.vendor}:{model}"
        if max_concurrency is None:
            max_concurrency = default_concurrency(self._profile, self.base_url)
        self.limits = _limits(where, max_concurrency, rpm, tpm, timeout, deadline, max_retries)
        self.instructions = instructions
        self._key = _text(where, "api_key", api_key) if api_key is not None else None
        if max_output_tokens is not None:
            _whole(where, "max_output_tokens", max_output_tokens, 1)
        self._options = {
            "headers": dict(headers or {}),
            "extra_body": dict(extra_body or {}),
            "temperature": temperature,
            "reasoning": reasoning,
            "max_output_tokens": max_output_tokens,
        }

    def __repr__(self) -> str:
        # Nothing here may show the key, nor headers, which may hold one.
        shown = [repr(self.model)]
        if self.name != f"{self._profile.vendor}:{self.model}":
            shown.append(f"name={self.name!r}")
        if self.base_url != self._profile.base_url:
            shown.append(f"base_url={self.base_url!r}")
        shown.append(f"max_concurrency={self.limits.max_concurrency}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __getstate__(self) -> dict[str, Any]:
        # A pickle is a file that gets passed on: keys, and headers that may hold them, stay behind.
        state = self.__dict__.copy()
        state["_key"] = None
        state["_options"] = {**self._options, "headers": {}}
        return state

    def _found_key(self) -> str | None:
        key = self._key or find_key(self._profile.key_env)
        if key is None and self._profile.key_required:
            variables = " or ".join(self._profile.key_env)
            raise ConfigError(
                f"{self.name} needs a key. Set the environment variable {variables}, put it into a .env file "
                f"in the working directory, or pass api_key=."
            )
        return key

    def _budget(self) -> tuple[Any, ...]:
        return (self.base_url, self._found_key(), self.model)

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        endpoint = Endpoint(self._profile.vendor, self.model, self.base_url, self._found_key(), **self._options)
        reason = check_settings(endpoint)
        if reason is not None:
            raise ConfigError(f"{self.name}: {reason}")
        return HttpCaller(endpoint, DIALECTS[self._profile.dialect], brief, self._budget())


class OpenAI(_HttpProvider):
    """A model of OpenAI, through chat completions.

    Parameters
    ----------
    model : str
        The model's name, for example ``"gpt-6-luna"``. There is no default.
    name : str, optional
        How it is called in columns and tables. Default ``"openai:<model>"``.
    api_key : str, optional
        Default: the environment variable ``OPENAI_API_KEY``, else the ``.env`` file in the
        working directory. Looked for when a run starts.
    base_url : str, optional
        Another address that speaks the same API, with or without ``/v1``.
    max_concurrency : int, optional
        Requests in flight at once. Default 16.
    rpm, tpm : float, optional
        Requests and tokens per minute; no limit where not given.
    timeout : float
        Seconds for one attempt.
    deadline : float
        Seconds for one row from its first attempt, all attempts and waits included.
    max_retries : int
        Repetitions of one row after transient failures. Waiting for a rate limit is not one.
    instructions : str, optional
        Added to the task's own instructions for this provider.
    temperature : float, optional
        Sent only when given: most current models refuse it.
    max_output_tokens : int, optional
        Default: what the task needs, and room to think for models that cannot be kept from it.
    reasoning : str, optional
        Effort, as the vendor names it (``"low"``, ...), or ``"off"``. Default: off, or as low
        as the model allows.
    headers, extra_body : mapping, optional
        Added to every request; they win over what this package sends.

    Raises
    ------
    ConfigError
        A value that cannot be; an unknown keyword (also a ``TypeError``).

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.OpenAI("gpt-6-luna", max_concurrency=32)
    OpenAI('gpt-6-luna', max_concurrency=32)
    """

    _vendor = "openai"


class Anthropic(_HttpProvider):
    """A model of Anthropic, through the messages API.

    Takes the keywords of `OpenAI`. The key is looked for in ``ANTHROPIC_API_KEY``; the default
    name is ``"anthropic:<model>"``.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.Anthropic("claude-haiku-5-5", max_concurrency=8)
    Anthropic('claude-haiku-5-5', max_concurrency=8)
    """

    _vendor = "anthropic"


class OpenAICompatible(_HttpProvider):
    """A model behind any server that speaks OpenAI's chat completions: vLLM, llama.cpp, LM Studio, Ollama.

    Takes the keywords of `OpenAI`. ``base_url`` must be given; a key only where the server wants
    one. ``max_concurrency`` defaults to 4 for a server on this machine, else to 16.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.OpenAICompatible("qwen3", base_url="http://localhost:11434/v1")
    OpenAICompatible('qwen3', base_url='http://localhost:11434/v1', max_concurrency=4)
    """

    _vendor = "openai-compatible"


class Embedded(Provider):
    """A small embedding model inside this process: classifies offline, without key or network.

    It compares a text with the labels' names and descriptions, and with the verb's ``examples``
    where some are given. Good for a first look, for tests, and for the easy rows. Needs
    ``pip install "batchkit-notebook[embedded]"``.

    Parameters
    ----------
    name : str
        How it is called in columns and tables.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.Embedded()
    Embedded()
    """

    @strict
    def __init__(self, *, name: str = "embedded") -> None:
        self.name = _text("Embedded", "name", name)
        # One thread: the model computes, and more threads would only take turns.
        self.limits = Limits(max_concurrency=1, timeout=600.0)
        self.instructions = None

    def __repr__(self) -> str:
        return "Embedded()" if self.name == "embedded" else f"Embedded(name={self.name!r})"

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        return EmbeddedCaller(brief)

    def _refuses(self, task: Task) -> str | None:
        if getattr(task, "multi_label", False):
            return "the embedded model gives one label a row; multi_label=True needs a language model."
        return None


class FunctionProvider(Provider):
    """A Python function that answers: your own client, another library, rules, a fake for a test.

    Parameters
    ----------
    fn : callable
        Gets a `Prompt` (a ``str``, the row's rendered text: for one column the cell unchanged,
        for several ``name: value`` lines; with ``.system``, ``.labels``, ``.schema``) and returns
        the answer (a label, or a dict with ``label`` and perhaps ``confidence``) or a reply's
        text. Async functions run on a loop; sync ones each in a thread.
    batched : bool
        Whether ``fn`` gets a list of prompts and returns a list of answers, in their order; an
        exception object in it is that row's failure.
    loop : {"engine", "caller"}
        ``"caller"`` runs ``fn`` on the loop of the thread that calls the verb, for clients bound
        to it. A loop that runs already (a notebook's) is then patched with nest-asyncio.
    name : str, optional
        How it is called in columns and tables. Default: the function's name.
    max_concurrency : int, optional
        Calls at once. Default 8; 1 for batched sync functions.
    rows_per_request : int
        The most prompts a batched function gets at once.
    timeout, deadline, max_retries, rpm, instructions
        As for `OpenAI`. ``TimeoutError`` and ``ConnectionError`` count as transient and are
        retried; any other exception is the row's error, of kind ``function``.

    Examples
    --------
    >>> import batchkit as bk
    >>> rules = bk.FunctionProvider(lambda prompt: "billing" if "invoice" in prompt else "other", name="rules")
    >>> rules
    FunctionProvider('rules')
    """

    @strict
    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        batched: bool = False,
        loop: Literal["engine", "caller"] = "engine",
        name: str | None = None,
        max_concurrency: int | None = None,
        rows_per_request: int = 64,
        rpm: float | None = None,
        timeout: float = 60.0,
        deadline: float = 600.0,
        max_retries: int = 5,
        instructions: str | None = None,
    ) -> None:
        where = "FunctionProvider"
        if not callable(fn):
            raise ConfigError(f"{where} needs a function; got {fn!r}.")
        if loop not in ("engine", "caller"):
            raise ConfigError(f"{where}: loop={loop!r} is neither 'engine' nor 'caller'.")
        self._function = fn
        self._batched = bool(batched)
        self._rows = _whole(where, "rows_per_request", rows_per_request, 1) if batched else 1
        self.needs_home_loop = loop == "caller"
        self.name = _text(where, "name", name or getattr(fn, "__name__", type(fn).__name__).strip("<>"))
        if max_concurrency is None:
            max_concurrency = 1 if batched and not inspect.iscoroutinefunction(fn) else 8
        self.limits = _limits(where, max_concurrency, rpm, None, timeout, deadline, max_retries)
        self.instructions = instructions

    def __repr__(self) -> str:
        return f"FunctionProvider({self.name!r}{', batched=True' if self._batched else ''})"

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        return FunctionCaller(
            self._function, batched=self._batched, batch=self._rows, home=home if self.needs_home_loop else None
        )


_BY_VENDOR: Mapping[str, type[_HttpProvider]] = {"openai": OpenAI, "anthropic": Anthropic}


def resolve(target: object) -> Provider:
    """Read what a user may give as a provider: a `Provider`, or a string spec ``"vendor:model"``.

    Raises
    ------
    ConfigError
        Anything else.
    """
    if isinstance(target, Provider):
        return target
    if not isinstance(target, str):
        raise ConfigError(
            f"{target!r} is no provider. Give one such as bk.OpenAI('gpt-6-luna'), or 'openai:gpt-6-luna'."
        )
    vendor, colon, model = target.partition(":")
    kind = _BY_VENDOR.get(vendor)
    if not colon or not model or kind is None:
        hint = "" if kind is not None else f" {nearest(vendor, _BY_VENDOR)}"
        raise ConfigError(f"{target!r} is no provider spec: 'vendor:model', for example 'openai:gpt-6-luna'.{hint}")
    return kind(model)


# ---- checking what was given ----------------------------------------------------------------------


def _limits(
    where: str,
    max_concurrency: int,
    rpm: float | None,
    tpm: float | None,
    timeout: float,
    deadline: float,
    max_retries: int,
) -> Limits:
    _whole(where, "max_concurrency", max_concurrency, 1)
    _whole(where, "max_retries", max_retries, 0)
    for name, value in (("rpm", rpm), ("tpm", tpm), ("timeout", timeout), ("deadline", deadline)):
        if value is not None and not (_is_number(value) and value > 0):
            raise ConfigError(f"{where}: {name}={value!r} must be a number above 0.")
    return Limits(max_concurrency, rpm, tpm, timeout, deadline, max_retries)


def _whole(where: str, name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{where}: {name}={value!r} must be a whole number of at least {least}.")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(where: str, name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "what was given" if name == "api_key" else repr(value)
        raise ConfigError(f"{where}: {name} must be a text that is not empty; {shown} is not.")
    return value


def _base_url(where: str, url: str | None) -> str:
    if url is None:
        raise ConfigError(f"{where} needs base_url=, for example base_url='http://localhost:8000/v1'.")
    reason = check_base_url(url)
    if reason is not None:
        # The reason leaves the URL out where it may hold a password.
        raise ConfigError(f"{where}: {reason}")
    return url
