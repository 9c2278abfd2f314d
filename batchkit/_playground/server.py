"""What a playground server is to do (`Server`), and what a running one has seen (`RunningServer`)."""

from __future__ import annotations

import importlib
import math
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from batchkit.errors import ConfigError, nearest

if TYPE_CHECKING:
    from batchkit.providers import Provider

__all__ = ["Log", "Request", "RunningServer", "Script", "Server", "check_step"]

Script = Sequence[str] | Callable[[str, int], str]

_PROVIDERS = {
    "openai": "OpenAI",
    "responses": "OpenAI",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
    "ollama": "Ollama",
}
_VERSIONED = ("openai", "responses")
_SHARES = ("server_errors", "drops", "garbage", "truncated", "invalid", "hangs")


@dataclass(frozen=True, slots=True)
class Server:
    """How one server of a playground behaves.

    A request that the vendor's documented rules forbid is refused as the vendor would, and noted
    in ``RunningServer.violations``; the rules go by the model's name, and a name that no vendor
    has stands for a model that takes everything.

    Which requests meet a fault is drawn from the playground's seed, the server's name, the row's
    text and how often that text has been asked: the same rows meet the same faults in any order.

    Parameters
    ----------
    dialect : {"openai", "responses", "anthropic", "gemini", "ollama"}, default "openai"
        OpenAI's chat completions or responses, Anthropic's messages, Gemini's generateContent, or
        Ollama's chat, beside which Ollama's own chat completions are served.
    latency : float, default 0.0
        Seconds from a request's arrival to its answer, on average.
    jitter : float, default 0.0
        Standard deviation of the latency in seconds. It is normally distributed, and never negative.
    rpm : float, optional
        Requests per minute. The quota refills continuously and one second of it (at least one
        request) may be saved up; what is beyond is refused with HTTP 429 and ``retry-after``.
    tpm : float, optional
        Tokens per minute, of input and output together, with a quota like that of ``rpm``. A
        request takes its input and its cap on output, and what it has not used of that comes back
        with the answer. One of more than a second's quota gets in when nothing is taken.
    limit_headers : bool, default False
        Whether all answers to questions say what is left of ``rpm`` and ``tpm``, in headers as
        the vendor sends them: OpenAI, Anthropic, and of the vendors ``azure``, ``groq`` (requests
        as so many per day) and ``mistral``. The others send none, whatever is set here.
    max_concurrency : int, optional
        Requests being answered at once; one more is refused with HTTP 429.
    server_errors : float, default 0.0
        Share of requests answered with HTTP 500.
    drops : float, default 0.0
        Share of requests whose connection is closed without an answer.
    garbage : float, default 0.0
        Share of requests answered with HTTP 200 and a body that is not JSON.
    truncated : float, default 0.0
        Share of requests whose answer is cut in half, as if it had met its cap on output tokens.
        Only where the cap is the first that was seen for that text, so that more room helps.
    invalid : float, default 0.0
        Share of requests answered with a label that is none of those asked for. Requests without
        labels are answered as usual.
    hangs : float, default 0.0
        Share of requests that are never answered.
    api_key : str, optional
        The key to insist on (HTTP 401 otherwise). By default any will do, and none.
    models : sequence of str, optional
        The models to know (HTTP 404 for others). By default any name will do.
    vendor : str, optional
        A vendor that speaks OpenAI's chat completions in its own way: ``azure``, ``deepseek``,
        ``groq``, ``llama.cpp``, ``lm-studio``, ``mistral``, ``moonshot``, ``ollama-v1``,
        ``openrouter``, ``qwen``, ``together`` or ``vllm``. Its rules, its paths and its errors
        are those of the server.
    refuses : sequence of str
        Parameters that the models do not take: a request that brings one is refused with the
        vendor's HTTP 400. ``"json_schema"`` stands for the wish for a schema, however the dialect
        puts it. This is no violation: a client can learn it only so.
    script : sequence of str or callable, optional
        What happens to requests, by name: ``"ok"`` for the usual, or a failure such as
        ``"rate_limit"``, ``"overloaded"``, ``"quota"``, ``"context_length"``, ``"refusal"`` or
        ``"fenced"`` (all stand in ``FAILURES`` in ``batchkit._playground.failures``). The n-th request that
        passes the rules and limits gets the n-th name, and those after the last ``"ok"``. A
        function gets the row's text and how often it was asked, from 1, and returns a name.

    Raises
    ------
    ConfigError
        A value is out of range, or the shares of faults come to more than 1.

    Examples
    --------
    >>> Server("anthropic", latency=0.2, max_concurrency=4, server_errors=0.03).rpm is None
    True
    >>> Server(script=["rate_limit_seconds", "ok", "cloudflare"], refuses=["temperature"]).dialect
    'openai'
    """

    dialect: str = "openai"
    latency: float = 0.0
    jitter: float = 0.0
    rpm: float | None = None
    tpm: float | None = None
    limit_headers: bool = False
    max_concurrency: int | None = None
    server_errors: float = 0.0
    drops: float = 0.0
    garbage: float = 0.0
    truncated: float = 0.0
    invalid: float = 0.0
    hangs: float = 0.0
    api_key: str | None = None
    models: Sequence[str] | None = None
    vendor: str | None = None
    refuses: Sequence[str] = ()
    script: Script | None = None

    def __post_init__(self) -> None:
        if self.dialect not in _PROVIDERS:
            raise ConfigError(f"Server(dialect={self.dialect!r}): write one of {', '.join(map(repr, _PROVIDERS))}.")
        for name in ("latency", "jitter", *_SHARES):
            _check_number(name, getattr(self, name), 1.0 if name in _SHARES else math.inf)
        if sum(getattr(self, name) for name in _SHARES) > 1 + 1e-9:
            raise ConfigError(f"Server: the shares {', '.join(_SHARES)} come to more than 1; make them smaller.")
        _check_limit("rpm", self.rpm, "requests")
        _check_limit("tpm", self.tpm, "tokens")
        announced: Any = self.limit_headers
        if not isinstance(announced, bool):
            raise ConfigError(f"Server(limit_headers={announced!r}): write True or False.")
        most: Any = self.max_concurrency
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise ConfigError(f"Server(max_concurrency={most!r}): write a whole number from 1, or None for no limit.")
        key: Any = self.api_key
        if key is not None and not (isinstance(key, str) and key):
            raise ConfigError("Server(api_key=...): write a text that is not empty, or None to take any key.")
        if self.models is not None and not _is_names(self.models):
            raise ConfigError(f"Server(models={self.models!r}): write a list of model names, or None to take any.")
        if self.refuses != () and not _is_names(self.refuses):
            raise ConfigError(f"Server(refuses={self.refuses!r}): write a list of parameters, such as ['temperature'].")
        if self.vendor is not None:
            _check_vendor(self.vendor, self.dialect)
        if self.script is not None:
            _check_script(self)

    def __repr__(self) -> str:
        shown = ((field.name, getattr(self, field.name)) for field in fields(self) if field.name != "api_key")
        defaults = {field.name: field.default for field in fields(self)}
        set_by_user = [f"{name}={value!r}" for name, value in shown if name == "dialect" or value != defaults[name]]
        return f"Server({', '.join(set_by_user)})"


def _check_vendor(vendor: Any, dialect: str) -> None:
    # Imported where it is used: `import batchkit` needs no wire format.
    from batchkit._playground.wires import VENDORS

    if dialect != "openai":
        raise ConfigError(f"Server(dialect={dialect!r}, vendor={vendor!r}): a vendor is for the dialect 'openai'.")
    if not isinstance(vendor, str) or vendor not in VENDORS:
        raise ConfigError(f"Server(vendor={vendor!r}): there is no such vendor. {nearest(str(vendor), VENDORS)}")


def _check_script(server: Server) -> None:
    script: Any = server.script
    if callable(script):
        return
    if isinstance(script, str) or not isinstance(script, Sequence):
        raise ConfigError(f"Server(script={script!r}): write a list of names, or a function of a text and a count.")
    for name in script:
        check_step(server, name)


def check_step(server: Server, name: Any) -> None:
    """Refuse a name in a script that is neither ``"ok"`` nor a failure of the server's dialect.

    Raises
    ------
    ConfigError
        There is no such failure, or not in this dialect.
    """
    from batchkit._playground.failures import FAILURES

    if name == "ok":
        return
    if not isinstance(name, str) or name not in FAILURES:
        raise ConfigError(f"Server(script=...): {name!r} is no failure. {nearest(str(name), ['ok', *FAILURES])}")
    if FAILURES[name].keys().isdisjoint({server.dialect, server.vendor}):
        speakers = ", ".join(map(repr, FAILURES[name]))
        raise ConfigError(f"Server({server.dialect!r}, script=...): {name!r} is a failure of {speakers} only.")


def _check_number(name: str, value: Any, most: float) -> None:
    if not _is_number(value) or not 0 <= value <= most or value == math.inf:
        wanted = "a share from 0 to 1" if most == 1 else "seconds, 0 or more"
        raise ConfigError(f"Server({name}={value!r}): write {wanted}.")


def _check_limit(name: str, value: Any, thing: str) -> None:
    if value is not None and not (_is_number(value) and 0 < value < math.inf):
        raise ConfigError(f"Server({name}={value!r}): write {thing} per minute, above 0, or None for no limit.")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return bool(value) and all(isinstance(name, str) for name in value)


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it. Times are ``time.monotonic()`` in seconds."""

    path: str
    fate: str
    """``answered``, or why not:

    - faults of the `Server`: ``server_error drop garbage truncated invalid hang``
    - a failure's name out of the server's script
    - limits: ``over_rpm over_tpm over_concurrency``
    - ``refused`` (key, model, path, body or rules), ``answer_raised`` (the function given as
      ``answer`` or ``script``)
    - ``abandoned``: the client left, or the server was closed, before the answer
    - ``models``: the list of models, given
    """
    status: int | None
    """HTTP status; None where no answer was given."""
    text: str
    """The row: the first user message."""
    arrived: float
    answered: float
    latency: float
    """Seconds drawn for this request, 0.0 where it was turned away at once."""
    input_tokens: int
    output_tokens: int
    connections: int
    """Connections open when it arrived."""


class Log:
    """What a server has seen. Written by the server's thread, read by any."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self.peak_connections = 0

    def enter(self, connections: int) -> None:
        """Note a request's arrival."""
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        self.peak_connections = max(self.peak_connections, connections)

    def leave(self, request: Request) -> None:
        """Note a request's end."""
        self.in_flight -= 1
        self.requests.append(request)


class RunningServer:
    """One server of a running `Playground`: its address, and a record of what it was asked.

    Get it as ``play["name"]`` or ``play.name``. The record stays readable after closing.

    Examples
    --------
    >>> with playground() as play:                                # doctest: +SKIP
    ...     frame.llm.classify("text", labels, route=play.fast.provider())
    ...     play.fast.counts
    Counter({'answered': 120})
    """

    def __init__(self, name: str, server: Server, url: str, log: Log) -> None:
        self.name = name
        self.server = server
        self.url = url
        self._log = log
        # Ports are given again: by this, answers of another playground at the same one are told apart in a journal.
        self._visit = uuid.uuid4().hex

    @property
    def base_url(self) -> str:
        """The base URL in the vendor's own form: with ``/v1`` for OpenAI, without for Anthropic."""
        if self.server.vendor is not None:
            from batchkit._playground.wires import VENDORS

            return self.url + VENDORS[self.server.vendor]
        return f"{self.url}/v1" if self.server.dialect in _VERSIONED else self.url

    @property
    def requests(self) -> list[Request]:
        """The requests that have ended, in order of arrival; a new list each time."""
        return sorted(self._log.requests, key=lambda request: request.arrived)

    @property
    def counts(self) -> Counter[str]:
        """How many requests ended how; see ``Request.fate``."""
        return Counter(request.fate for request in self._log.requests.copy())

    @property
    def statuses(self) -> Counter[int | None]:
        """How many requests got which HTTP status."""
        return Counter(request.status for request in self._log.requests.copy())

    @property
    def violations(self) -> list[str]:
        """What requests did against the vendor's documented rules, or what it passed over in silence."""
        return self._log.violations.copy()

    @property
    def in_flight(self) -> int:
        """Requests that have arrived and have not ended."""
        return self._log.in_flight

    @property
    def peak_in_flight(self) -> int:
        """The most requests that were ever in flight at once, those turned away included."""
        return self._log.peak_in_flight

    @property
    def peak_connections(self) -> int:
        """The most connections that were open when a request arrived."""
        return self._log.peak_connections

    def provider(self, model: str = "playground", **settings: Any) -> Provider:
        """Make a provider that asks this server.

        Parameters
        ----------
        model : str, default "playground"
            Any name, or one of ``models`` if the server was given some.
        **settings
            Keywords of `batchkit.OpenAI` or whichever class speaks the server's dialect.
            ``name``, ``api_key``, ``base_url``, the server's own ``max_concurrency``, and
            ``endpoint`` or ``vendor`` where the server has one, are filled in where not given.

        Returns
        -------
        Provider
            The vendor's, by default called as the server is.
        """
        providers = importlib.import_module("batchkit.providers")
        known: dict[str, Any] = {
            "name": self.name,
            "api_key": self.server.api_key or "playground",
            "base_url": self.base_url,
            "max_concurrency": self.server.max_concurrency,
        }
        kind = _PROVIDERS[self.server.dialect]
        if self.server.dialect == "responses":
            known["endpoint"] = "responses"
        if self.server.vendor is not None:
            kind, known["vendor"] = "OpenAICompatible", self.server.vendor
        make: Any = getattr(providers, kind)
        headers = {"X-Playground": self._visit, **(settings.pop("headers", None) or {})}
        provider: Provider = make(model, **{**known, **settings}, headers=headers)
        return provider

    def __repr__(self) -> str:
        return f"<{self.name} at {self.url}: {self.server!r}, {len(self._log.requests)} requests>"
