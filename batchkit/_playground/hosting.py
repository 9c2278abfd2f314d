"""`playground`: servers on this machine that speak the vendors' formats, to try and to test notebooks on."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import fields
from importlib import resources
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any

import pandas as pd

from batchkit._playground.server import RunningServer, Server
from batchkit.errors import ConfigError, UnknownKeyword, nearest

if TYPE_CHECKING:
    from batchkit._playground.answers import AnswerFunction
    from batchkit._playground.site import Site

__all__ = ["Playground", "playground"]

_DEFAULT_SERVERS = {
    "fast": Server("openai", latency=0.05),
    "careful": Server("anthropic", latency=0.2, max_concurrency=4),
}

_LABELS = MappingProxyType(
    {
        "billing": "payments, charges and invoices",
        "delivery": "shipping, tracking and parcels that are late or lost",
        "defect": "cracked, broken, leaking, noisy or faulty item that stopped working",
        "return": "sending goods back or exchanging them",
        "account": "login, password, profile and personal data",
        "praise": "thank you, great service, lovely product",
    }
)


def playground(
    *, seed: int = 0, answer: AnswerFunction | None = None, **servers: Server | Mapping[str, Any]
) -> Playground:
    """Set up loopback servers that answer as the vendors would: no key, no cost, no internet.

    The servers are real: requests go over HTTP to free ports of 127.0.0.1, meet the limits and
    faults they were given, and are answered with the embedded model's judgement of the text
    (or with ``answer``'s). Each vendor's documented rules hold: a request that breaks one is
    refused as the vendor would. What works here is what runs against a vendor; only the URL differs.

    Parameters
    ----------
    seed : int, default 0
        Seed of all faults and latencies.
    answer : callable, optional
        ``answer(text, labels)`` gets a row's text and a tuple of the labels on the wire (empty
        where the request has none) and returns a label or any JSON value; a dict is the whole
        answer. It runs on the servers' one thread, so it should be quick. An exception of its
        becomes an HTTP 500. By default the embedded model chooses among the labels, which needs
        ``pip install "batchkit-notebook[embedded]"``; a request without labels is echoed.
    **servers : dict or Server
        The servers by name, each a dict of the keywords of `Server`. By default two: ``fast``
        (OpenAI, 0.05 s) and ``careful`` (Anthropic, 0.2 s, four requests at once).

    Returns
    -------
    Playground
        Not started yet: use it with ``with`` or ``async with``, or call ``start()`` and ``close()``.

    Raises
    ------
    ConfigError
        A server has an unknown or impossible setting, or a name or the seed cannot be used.

    Examples
    --------
    >>> import batchkit as bk                                                  # doctest: +SKIP
    >>> with bk.playground() as play:                                          # doctest: +SKIP
    ...     route = bk.when("lang == 'zh'", play.careful.provider()).otherwise(play.fast.provider())
    ...     out = play.messages.llm.classify("text", play.labels, route=route)
    >>> shaky = bk.playground(slow={"latency": 1.0, "rpm": 600, "server_errors": 0.05})
    """
    described = {name: _server(name, server) for name, server in servers.items()}
    return Playground(described or _DEFAULT_SERVERS, seed=seed, answer=answer)


class Playground:
    """Loopback servers, made by `playground`. ``play["fast"]`` or ``play.fast`` is a `RunningServer`.

    ``with``, ``async with`` and ``start()`` / ``close()`` all do the same; a closed playground can
    be started again, on new ports and with empty records. Closing hangs up on requests in flight.
    """

    def __init__(self, servers: Mapping[str, Server], *, seed: int = 0, answer: AnswerFunction | None = None) -> None:
        _check_servers(servers)
        _check_settings(seed, answer)
        self._servers = dict(servers)
        self._seed = seed
        self._answer = answer
        self._running: dict[str, RunningServer] = {}
        self._host: _Host | None = None

    @property
    def messages(self) -> pd.DataFrame:
        """The bundled customer messages of a web shop: a new frame of 120 rows each time.

        Columns ``text``, ``truth`` (the right one of `labels`), ``lang`` (``en`` or ``zh``) and
        ``channel`` (``email``, ``chat`` or ``phone``), all text.
        """
        with resources.files(__package__).joinpath("messages.csv").open(encoding="utf-8") as file:
            return pd.read_csv(file, keep_default_na=False)

    @property
    def labels(self) -> dict[str, str]:
        """The labels of `messages` with a description each, as ``classify`` takes them."""
        return dict(_LABELS)

    def start(self) -> Playground:
        """Start the servers, if they are not running, and return when they listen.

        Raises
        ------
        ConfigError
            No ``answer`` was given and the embedded model is not installed.
        """
        if self._host is None:
            self._host = self._begin()
            try:
                self._running = self._host.started.result()
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Stop the servers, if they are running. Their records stay readable."""
        host = self._let_go()
        if host is not None:
            host.join()

    def __enter__(self) -> Playground:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Playground:
        if self._host is None:
            self._host = self._begin()
            try:
                self._running = await asyncio.wrap_future(self._host.started)
            except BaseException:
                self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        host = self._let_go()
        if host is not None:
            await asyncio.wrap_future(host.stopped)
            host.join()

    def _begin(self) -> _Host:
        atexit.register(self.close)
        return _Host(self._servers, self._seed, self._answer)

    def _let_go(self) -> _Host | None:
        host, self._host = self._host, None
        if host is not None:
            atexit.unregister(self.close)
            host.stop()
        return host

    def __getitem__(self, name: str) -> RunningServer:
        if name not in self._servers:
            raise ConfigError(f"The playground has no server {name!r}. {nearest(name, self._servers)}")
        if name not in self._running:
            raise ConfigError(f"The server {name!r} is not running yet: use the playground with `with`, or start() it.")
        return self._running[name]

    def __getattr__(self, name: str) -> RunningServer:
        # Asked only for names that are no attribute; _servers itself is missing while unpickling.
        if name.startswith("_") or name not in self._servers:
            raise AttributeError(f"A playground has no attribute or server {name!r}.")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._servers]

    def __repr__(self) -> str:
        state = "running" if self._host is not None else "not running"
        return f"<Playground {state}: {', '.join(f'{name}={server!r}' for name, server in self._servers.items())}>"


def _server(name: str, described: object) -> Server:
    if isinstance(described, Server):
        return described
    if not isinstance(described, Mapping):
        raise ConfigError(
            f"playground({name}={described!r}): every keyword but seed and answer names a server "
            f"and describes it, as in {name}={{'latency': 0.1}}."
        )
    known = [field.name for field in fields(Server)]
    for setting in described:
        if setting not in known:
            raise UnknownKeyword.at(f"the playground's server {name}", setting, known)
    return Server(**described)


def _check_servers(servers: Mapping[str, Server]) -> None:
    for name in servers:
        if name.startswith("_") or hasattr(Playground, name):
            raise ConfigError(f"playground({name}=...): {name!r} cannot name a server; choose another name.")


def _check_settings(seed: Any, answer: Any) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"playground(seed={seed!r}): write a whole number.")
    if answer is not None and not callable(answer):
        raise ConfigError(f"playground(answer={answer!r}): write a function of a text and its labels, or None.")


class _Host:
    """A thread with an event loop on which all servers of a playground live."""

    def __init__(self, servers: Mapping[str, Server], seed: int, answer: AnswerFunction | None) -> None:
        self.started: Future[dict[str, RunningServer]] = Future()
        self.stopped: Future[None] = Future()
        # A caller's task that is cancelled while it waits must not cancel what it waits for.
        self.started.set_running_or_notify_cancel()
        self.stopped.set_running_or_notify_cancel()
        self._servers = servers
        self._seed = seed
        self._answer = answer
        self._thread = threading.Thread(target=self._run, name="batchkit-playground", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the servers to stop; ``stopped`` says when they have."""
        if self.started.exception() is None:
            self._loop.call_soon_threadsafe(self._stop_asked.set)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        try:
            # Loaded here and not at `import batchkit`, and before the loop runs: aiohttp and the model take a while.
            from batchkit._playground.answers import Answerer
            from batchkit._playground.site import Site

            answerer = Answerer(self._answer)
            sites = {name: Site(name, server, self._seed, answerer) for name, server in self._servers.items()}
            with asyncio.Runner() as runner:
                runner.run(self._host(sites))
        except BaseException as error:  # whoever waits for the start is to see it
            if self.started.done():
                raise
            self.started.set_exception(error)
        finally:
            self.stopped.set_result(None)

    async def _host(self, sites: Mapping[str, Site]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_asked = asyncio.Event()
        running: dict[str, RunningServer] = {}
        async with AsyncExitStack() as open_sites:
            for name, site in sites.items():
                url = await site.open()
                open_sites.push_async_callback(site.close)
                running[name] = RunningServer(name, self._servers[name], url, site.log)
            self.started.set_result(running)
            await self._stop_asked.wait()
