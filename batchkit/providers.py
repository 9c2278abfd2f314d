"""Providers: a model somewhere, what it may be asked to bear, and how it is reached."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from random import Random
from typing import Any, Literal, TypeGuard

import orjson

from batchkit._dialects import DIALECTS
from batchkit._dialects.base import check_base_url
from batchkit._dialects.profiles import PROFILES, Profile, check_settings, default_concurrency
from batchkit._engine import bridge
from batchkit._engine.callers import Caller, EmbeddedCaller, FunctionCaller, HttpCaller
from batchkit._engine.execute import Execution
from batchkit._engine.ledger import ANSWERED, Ledger
from batchkit._engine.plan import LaneSpec, Plan
from batchkit._logic.itinerary import Seat, seated
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify, Task
from batchkit.errors import ConfigError, nearest
from batchkit.records import ERROR_KINDS, Brief, Endpoint, Limits
from batchkit.settings import find_key, strict

__all__ = ["Anthropic", "Embedded", "FunctionProvider", "OpenAI", "OpenAICompatible", "Provider", "resolve"]


@dataclass(frozen=True, slots=True)
class Check:
    """What `Provider.check` found."""

    provider: str
    ok: bool
    """Key, model and structured output work."""
    seconds: float
    """From the request to its answer, a new connection included where there was none."""
    model: str | None = None
    """As the provider names it."""
    error: str | None = None
    message: str | None = None


def _checked(provider: str, ledger: Ledger) -> Check:
    log = ledger.attempts
    seconds = log.ended[-1] - log.started[0] if len(log) else math.nan
    if ledger.state[0] == ANSWERED:
        return Check(provider, True, seconds, log.model[-1])
    return Check(provider, False, seconds, None, ERROR_KINDS[ledger.kind[0]], ledger.messages[0])


class Provider:
    """Something that answers questions about rows. Compared by identity."""

    name: str
    """How it is called in columns and tables; unique within a run."""
    limits: Limits
    instructions: str | None
    """Added to the task's instructions at this provider only."""
    needs_home_loop = False

    @functools.cached_property
    def _own(self) -> object:
        # Not id(self): another provider may get the same one once this is gone.
        return object()

    def check(self) -> Check:
        """Make one tiny request: whether the key is right, the model there, and its answer in the form asked for.

        The connection stays open for the next run.

        Returns
        -------
        Check
            ``ok``, the answering ``model``, ``seconds``, and where it is not ok ``error`` and ``message``.

        Raises
        ------
        ConfigError
            A key is missing.

        Examples
        --------
        >>> import batchkit as bk
        >>> bk.FunctionProvider(lambda text: "billing", name="rules").check().ok
        True
        """
        task = Classify(LabelSet(("billing", "delivery")))
        with bridge.home_loop(self.needs_home_loop) as home:
            lane = self._lane(task, home)
            lane = replace(lane, limits=replace(lane.limits, max_retries=0, deadline=lane.limits.timeout))
            plan = Plan(
                task, ["I was charged twice for one order."], [0], [1], (seated(Seat(frozenset({0}))),), (lane,)
            )
            ledger = Ledger(plan)
            future = bridge.submit(Execution(plan, ledger, rng=Random()).run())
            try:
                bridge.wait(future, lambda: None, home)
            except KeyboardInterrupt:
                future.cancel()
                raise
        return _checked(self.name, ledger)

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        raise NotImplementedError

    def _budget(self) -> tuple[Any, ...]:
        """Whose limits it uses: its own, unless something outside has limits that others use too."""
        return (self._own,)

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
        self.base_url = _base_url(where, self._profile.base_url if base_url is None else base_url)
        self.name = _text(where, "name", name) if name is not None else f"{self._profile.vendor}:{model}"
        if max_concurrency is None:
            max_concurrency = default_concurrency(self._profile, self.base_url)
        self.limits = _limits(where, max_concurrency, rpm, tpm, timeout, deadline, max_retries)
        self.instructions = _instructions(where, instructions)
        self._key = None if api_key is None else _text(where, "api_key", api_key).strip()
        if self._key is not None:
            _check_key(where, self._key)
        if max_output_tokens is not None:
            max_output_tokens = _whole(where, "max_output_tokens", max_output_tokens, 1)
        if temperature is not None and not (_is_number(temperature) and temperature >= 0):
            raise ConfigError(f"{where}: temperature={temperature!r} must be a number of at least 0.")
        if reasoning is not None:
            _text(where, "reasoning", reasoning)
        self._options: dict[str, Any] = {
            "headers": _headers(where, headers),
            "extra_body": _extra_body(where, extra_body),
            "temperature": None if temperature is None else float(temperature),
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
        if key is not None:
            _check_key(self.name, key)
        return key

    def _endpoint(self) -> Endpoint:
        return Endpoint(self._profile.vendor, self.model, self.base_url, self._found_key(), **self._options)

    def _budget(self) -> tuple[Any, ...]:
        endpoint = self._endpoint()
        # The address posted to, because one base URL has several spellings.
        return (DIALECTS[self._profile.dialect].url(endpoint), endpoint.key, self.model)

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        endpoint = self._endpoint()
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
        if importlib.util.find_spec("wordllama") is None:
            raise ConfigError('the embedded model is not installed: pip install "batchkit-notebook[embedded]"')
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
        if not batched and rows_per_request != 64:
            raise ConfigError(f"{where}: rows_per_request={rows_per_request!r} is for batched=True.")
        self._rows = _whole(where, "rows_per_request", rows_per_request, 1) if batched else 1
        self.needs_home_loop = loop == "caller"
        usual = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        self.name = _text(where, "name", usual if name is None else name)
        if max_concurrency is None:
            max_concurrency = 1 if batched and not inspect.iscoroutinefunction(fn) else 8
        self.limits = _limits(where, max_concurrency, rpm, None, timeout, deadline, max_retries)
        self.instructions = _instructions(where, instructions)

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
        hint = "" if kind is not None else f" {nearest(vendor.lower(), _BY_VENDOR)}"
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
    for name, value in (("rpm", rpm), ("tpm", tpm), ("timeout", timeout), ("deadline", deadline)):
        absent = value is None and name in ("rpm", "tpm")
        if not absent and not (_is_number(value) and value > 0):
            raise ConfigError(f"{where}: {name}={value!r} must be a number above 0.")
    concurrency = _whole(where, "max_concurrency", max_concurrency, 1)
    retries = _whole(where, "max_retries", max_retries, 0)
    return Limits(concurrency, rpm, tpm, timeout, deadline, retries)


def _whole(where: str, name: str, value: Any, least: int) -> int:
    # Integral and not int: numbers out of a frame are numpy's.
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigError(f"{where}: {name}={value!r} must be a whole number of at least {least}.")
    return int(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _instructions(where: str, given: Any) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise ConfigError(f"{where}: instructions must be a text; got {given!r}.")


def _check_key(where: str, key: str) -> None:
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{where}: the API key holds a character that no HTTP header can carry. Was it copied whole?")


def _headers(where: str, given: Any) -> dict[str, str]:
    # What is wrong is said without the values: one of them may be a key.
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: headers must be a dict of name -> text, not a {type(given).__name__}.")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name or not (name + value).isprintable():
            raise ConfigError(f"{where}: the header {name!r} must be a name and a text, each on one line.")
    return dict(given)


def _extra_body(where: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: extra_body must be a dict, not a {type(given).__name__}.")
    try:
        orjson.dumps(dict(given))
    except TypeError as error:
        raise ConfigError(f"{where}: extra_body cannot be written as JSON: {error}.") from None
    return dict(given)


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
    return url.strip()
