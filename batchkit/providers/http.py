"""Models behind HTTP APIs. What differs between vendors is a row in their profiles."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from batchkit._dialects import DIALECTS
from batchkit._dialects.base import Dialect, canonical_url
from batchkit._dialects.hints import key_problem
from batchkit._dialects.profiles import (
    PROFILES,
    Profile,
    check_settings,
    default_concurrency,
    dialect_name,
    is_local,
    is_own,
)
from batchkit._engine.callers import Caller, HttpCaller
from batchkit._logic.pricing import Price
from batchkit._logic.tasks import Task
from batchkit.errors import ConfigError, nearest
from batchkit.prices import price_of
from batchkit.providers import checks
from batchkit.providers.base import Provider, fingerprint
from batchkit.records import Brief, Endpoint
from batchkit.settings import find_ca_file, find_key, find_proxy, from_environment, strict

__all__ = ["Anthropic", "Gemini", "Ollama", "OpenAI", "OpenAICompatible"]


_SECRET = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")


class _HttpProvider(Provider):
    """A model behind an HTTP API. What differs between vendors is a row in their profiles."""

    takes_cap = True
    _vendor: str

    @strict
    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        endpoint: str | None = None,
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
        price: Any = None,
    ) -> None:
        where = type(self).__name__
        self._profile: Profile = PROFILES[self._vendor]
        self._needs_key = self._profile.key_required
        self.model = checks.text(where, "model", model)
        address = self._usual_base_url() if base_url is None else base_url
        self.base_url = checks.base_url(where, address, self._profile.example_url)
        self._default_name = f"{self._profile.vendor}:{model}"
        self.name = self._default_name if name is None else checks.text(where, "name", name)
        usual = default_concurrency(self._profile, self.base_url)
        slots = usual if max_concurrency is None else max_concurrency
        limits = checks.limits(where, slots, rpm, tpm, timeout, deadline, max_retries)
        self.limits = replace(limits, is_usual=max_concurrency is None)
        self.instructions = checks.instructions(where, instructions)
        self._key = None if api_key is None else checks.text(where, "api_key", api_key).strip()
        if max_output_tokens is not None:
            max_output_tokens = checks.whole(where, "max_output_tokens", max_output_tokens, 1)
        if temperature is not None and not (checks.is_number(temperature) and temperature >= 0):
            raise ConfigError(f"{where}: temperature={temperature!r} must be a number of at least 0.")
        if reasoning is not None:
            checks.text(where, "reasoning", reasoning)
        self._options: dict[str, Any] = {
            "headers": checks.headers(where, headers),
            "extra_body": checks.extra_body(where, extra_body),
            "temperature": None if temperature is None else float(temperature),
            "reasoning": reasoning,
            "max_output_tokens": max_output_tokens,
        }
        self._given_price = None if price is None else checks.price(where, price)
        self._wire_format = self._checked_endpoint(where, endpoint)
        if self._key is not None:
            self._check_key(f"{where}: api_key", self._key)

    def __repr__(self) -> str:
        # Nothing here may show the key, nor headers, which may hold one.
        shown = [repr(self.model)]
        if self.name != self._default_name:
            shown.append(f"name={self.name!r}")
        shown += self._shown()
        if self.base_url != self._profile.base_url:
            shown.append(f"base_url={self.base_url!r}")
        shown.append(f"max_concurrency={self.limits.max_concurrency}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _shown(self) -> list[str]:
        """What else tells it from its like."""
        return []

    def __getstate__(self) -> dict[str, Any]:
        # A pickle is a file that gets passed on: keys, and headers that may hold them, stay behind.
        state = self.__dict__.copy()
        state["_key"] = None
        state["_options"] = {**self._options, "headers": {}}
        return state

    def _adjusted(self, max_concurrency: int | None, max_output_tokens: int | None) -> Provider:
        other = super()._adjusted(max_concurrency, max_output_tokens)
        if max_output_tokens is not None and isinstance(other, _HttpProvider):
            other._options = {**self._options, "max_output_tokens": max_output_tokens}
        return other

    def _without_key(self) -> Provider:
        other = self._copied()
        other._needs_key = False
        return other

    def _usual_base_url(self) -> str | None:
        return self._profile.base_url

    def _checked_endpoint(self, where: str, given: str | None) -> str | None:
        if given is None:
            return None
        raise ConfigError(f"{where}: endpoint={given!r}: there is only one here. Leave it out.")

    def _found_key(self) -> str | None:
        if self._key is not None:
            return self._key
        found = find_key(self._profile.key_env)
        if found is not None:
            key, variable = found
            self._check_key(f"{self.name}: {variable}", key)
            return key
        if not self._needs_key:
            return None
        variables = " or ".join(self._profile.key_env)
        raise ConfigError(
            f"{self.name} needs a key. Set the environment variable {variables}, put it into a .env file "
            f"in the working directory, or pass api_key=."
        )

    def _check_key(self, where: str, key: str) -> None:
        own = is_own(Endpoint(self._profile.vendor, self.model, self.base_url))
        if (not own or is_local(self.base_url)) and key.isascii() and key.isprintable():
            return  # another server's keys look as it pleases, and one on this machine may take any
        problem = key_problem(key, self._profile.vendor if own else None)
        if problem is not None:
            raise ConfigError(f"{where}: {problem}")

    def _endpoint(self) -> Endpoint:
        return Endpoint(self._profile.vendor, self.model, self.base_url, self._found_key(), **self._options)

    def _dialect(self, endpoint: Endpoint) -> Dialect:
        return DIALECTS[self._wire_format or dialect_name(endpoint)]

    def _budget(self) -> tuple[Any, ...]:
        endpoint = self._endpoint()
        return (self._place(endpoint), endpoint.key, self.model)

    def _place(self, endpoint: Endpoint) -> str:
        """The address posted to, however its base URL is spelled."""
        return canonical_url(self._dialect(endpoint).url(endpoint))

    def _price(self) -> Price | None:
        return self._given_price or price_of(self._profile.vendor, self.model, self.base_url)

    def _fingerprint(self, task: Task, brief: Brief) -> bytes | None:
        endpoint = self._endpoint()
        # What a header may change is an answer like any other; a key among them is not.
        headers = {name.lower(): value for name, value in endpoint.headers.items() if name.lower() not in _SECRET}
        return fingerprint(
            task,
            brief,
            url=self._place(endpoint),
            model=self.model,
            temperature=endpoint.temperature,
            reasoning=endpoint.reasoning,
            extra_body=endpoint.extra_body,
            headers=headers,
        )

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        endpoint = self._endpoint()
        reason = check_settings(endpoint)
        if reason is not None:
            raise ConfigError(f"{self.name}: {reason}")
        dialect = self._dialect(endpoint)
        try:
            url = dialect.url(endpoint)
        except ValueError as error:  # a model's name that can stand in no URL
            raise ConfigError(f"{self.name}: {error}") from None
        proxy = find_proxy(url)
        return HttpCaller(endpoint, dialect, brief, self._budget(), proxy=proxy, ca_file=find_ca_file(url, proxy))


class OpenAI(_HttpProvider):
    """A model of OpenAI, through chat completions or the Responses API.

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
    endpoint : {"responses"}, optional
        Speak the Responses API. Default: chat completions, unless the model has only another.
    max_concurrency : int, optional
        Requests in flight at once. What you give is used at once. The default, 16, is begun with
        half of it and taken up for as long as more at once bring more replies a second.
    rpm, tpm : float, optional
        Requests and tokens per minute. Where not given they are learned: from the headers of
        replies, else from what the provider takes once it begins to refuse.
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
    price : (input, output) or dict, optional
        USD per million tokens; a dict may add ``cached`` and ``reasoning``. Default: what is
        known of the vendor's own address, else unknown.

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

    def _checked_endpoint(self, where: str, given: str | None) -> str | None:
        if given in (None, "responses"):
            return given
        raise ConfigError(f"{where}: endpoint={given!r} is not one of None, 'responses'.")


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


class Gemini(_HttpProvider):
    """A model of Google, through the Gemini API.

    Takes the keywords of `OpenAI`, but no ``endpoint``. The key is looked for in
    ``GOOGLE_API_KEY``, then ``GEMINI_API_KEY``; the default name is ``"gemini:<model>"``.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.Gemini("gemini-3.5-flash-lite")
    Gemini('gemini-3.5-flash-lite', max_concurrency=16)
    """

    _vendor = "gemini"


class Ollama(_HttpProvider):
    """A model that Ollama runs, on this machine or elsewhere, through its own API.

    Takes the keywords of `OpenAI`, but no ``endpoint``. ``base_url`` defaults to ``OLLAMA_HOST``,
    else ``http://localhost:11434``; a key is needed only where the server wants one. The context
    window is made large enough for the longest row. ``max_concurrency`` defaults to 1, which is
    what Ollama answers at once unless ``OLLAMA_NUM_PARALLEL`` says otherwise.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.Ollama("qwen3")
    Ollama('qwen3', max_concurrency=1)
    """

    _vendor = "ollama"

    def _usual_base_url(self) -> str | None:
        host = from_environment("OLLAMA_HOST")
        return self._profile.base_url if host is None else _ollama_url(host)

    def _brief(self, task: Task, texts: Sequence[str]) -> Brief:
        longest = max((len(text.encode("utf-8", "replace")) for text in texts), default=0)
        return replace(task.brief(self.instructions), longest_row=longest)


class OpenAICompatible(_HttpProvider):
    """A model behind any server that speaks OpenAI's chat completions.

    Takes the keywords of `OpenAI`, but no ``endpoint``, and one of ``vendor`` and ``base_url``.

    Parameters
    ----------
    vendor : str, optional
        One of the vendors known by name: azure, deepseek, groq, llama.cpp, lm-studio, mistral,
        ollama-v1, openrouter, qwen, together, vllm. It brings the base URL (not Azure's, which is
        yours), the key's variable and the vendor's habits.
    base_url : str, optional
        The address, with or without ``/v1``. Without ``vendor`` a key is sent only where one is given.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.OpenAICompatible("openai/gpt-oss-20b", vendor="groq")
    OpenAICompatible('openai/gpt-oss-20b', vendor='groq', max_concurrency=16)
    >>> bk.OpenAICompatible("my-model", base_url="http://localhost:8000/v1")
    OpenAICompatible('my-model', base_url='http://localhost:8000/v1', max_concurrency=4)
    """

    def __init__(self, model: str, *, vendor: str | None = None, **settings: Any) -> None:
        if vendor is not None and vendor not in _COMPATIBLE:
            raise ConfigError(f"OpenAICompatible: vendor={vendor!r} is not known. {nearest(vendor, _COMPATIBLE)}")
        self._vendor = vendor or "openai-compatible"
        super().__init__(model, **settings)

    def _shown(self) -> list[str]:
        return [] if self._vendor == "openai-compatible" else [f"vendor={self._vendor!r}"]


_COMPATIBLE = sorted(
    name
    for name, profile in PROFILES.items()
    if profile.dialect == "openai" and name not in ("openai", "openai-compatible")
)


def _show_all_keywords() -> None:
    """Let ``?`` and Tab show what `OpenAICompatible` passes on."""
    usual = inspect.signature(_HttpProvider.__init__).parameters
    vendor = inspect.Parameter("vendor", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    first = [usual["self"], usual["model"], vendor]
    rest = [parameter for name, parameter in usual.items() if name not in ("self", "model")]
    OpenAICompatible.__init__.__signature__ = inspect.Signature([*first, *rest])  # type: ignore[attr-defined]


_show_all_keywords()


def _ollama_url(host: str) -> str:
    """``OLLAMA_HOST`` may lack scheme and port, and may be the address a server listens on."""
    url = urlsplit(host if "://" in host else f"http://{host}")
    name = "127.0.0.1" if url.hostname in ("0.0.0.0", None) else url.hostname
    name = f"[{name}]" if ":" in name else name
    port = url.port or {"https": 443, "http": 11434}[url.scheme if url.scheme == "https" else "http"]
    return f"{url.scheme}://{name}:{port}{url.path}"
