"""The only aiohttp client: a body goes out, a status and a body come back, or a reason why not."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import ssl
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import aiohttp
from yarl import URL

from batchkit._engine import bridge
from batchkit._engine.watch import Watch, watch_of_loop
from batchkit.errors import ConfigError
from batchkit.records import Failure, Scope

__all__ = ["Channel", "HttpAnswer", "open_channel", "trusting"]

_LARGE = 1 << 20
_CONNECT = 15.0
"""Seconds for a connection to come about: a firewall says nothing, and rows should not wait for it in vain."""
_IDLE = 30.0
"""Seconds for which an unused session keeps its connections, so that the next small cell finds them warm."""


class HttpAnswer(NamedTuple):
    """A response, read whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(eq=False)
class _Session:
    client: aiohttp.ClientSession
    watch: Watch
    users: int = 0
    closing: asyncio.TimerHandle | None = None


_sessions: dict[Hashable, _Session] = {}


class Channel:
    """A provider's connections, on loan from a session that lives on between runs."""

    __slots__ = ("_key", "_proxy", "_session", "_text", "_url")

    def __init__(self, key: Hashable, session: _Session, proxy: str | None) -> None:
        self._key = key
        self._session = session
        self._proxy = proxy
        self._text: str | None = None
        self._url = URL()

    async def post(self, url: str, body: bytes, timeout: float) -> HttpAnswer | Failure:
        """Send one request. Foreign errors come back as failures, cancellation passes through."""
        if url != self._text:
            try:
                self._text, self._url = url, URL(url)
            except ValueError:
                return _translate(aiohttp.InvalidURL(url))
        watch = self._session.watch
        task = watch.begin(timeout)
        try:
            # Awaited and not entered: read to its end, or failing at that, a response gives its connection back.
            response = await self._session.client.post(
                self._url,
                # aiohttp warns of large bodies given as bytes, which it writes at one go.
                data=body if len(body) < _LARGE else io.BytesIO(body),
                allow_redirects=False,  # they would carry the key to wherever they point
                proxy=self._proxy,
            )
            content = response.content
            # Most replies arrive at one go: then there is nothing to wait for.
            reply = content.read_nowait() if content.is_eof() else await response.read()
            return HttpAnswer(response.status, response.headers, reply)
        except asyncio.CancelledError:
            if not watch.is_overdue(task):
                raise
            return Failure("timeout", f"no answer within {timeout:g} s", Scope.TRANSIENT)
        except aiohttp.ConnectionTimeoutError:
            text = f"no connection within {_CONNECT:g} s"
            return Failure("connection", text, Scope.TRANSIENT, unreached=True)
        except aiohttp.ClientError as error:
            return _translate(error)
        except UnicodeError:  # a host that no name may look like
            return _translate(aiohttp.InvalidURL(url))
        finally:
            watch.end(task)

    def close(self) -> None:
        """Give the connections back. Without another user the session closes after a while."""
        session = self._session
        session.users -= 1
        if not session.users:
            loop = asyncio.get_running_loop()
            session.closing = loop.call_later(_IDLE, _expire, self._key)


def open_channel(
    budget: Hashable, headers: Mapping[str, str], *, proxy: str | None = None, ca_file: str | None = None
) -> Channel:
    """Borrow the session that belongs to a budget (base URL, key, model), or open one.

    Parameters
    ----------
    headers : mapping
        Sent with each request; what is sent with others has connections of its own.
    proxy : str, optional
        URL of the proxy to go through.
    ca_file : str, optional
        File of certificates to trust beside the system's.
    """
    key = (budget, ca_file, frozenset(headers.items()))
    session = _sessions.get(key)
    if session is None:
        client = aiohttp.ClientSession(
            # The slots of a lane bound its connections; a second bound here would only queue in secret.
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_IDLE, ssl=True if ca_file is None else trusting(ca_file)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
        )
        session = _sessions[key] = _Session(client, watch_of_loop())
    if session.closing is not None:
        session.closing.cancel()
        session.closing = None
    session.users += 1
    return Channel(key, session, proxy)


@functools.cache
def trusting(ca_file: str) -> ssl.SSLContext:
    """TLS that trusts the certificates in a file beside the system's. Reads files: not for the loop's thread at first.

    Raises
    ------
    ConfigError
        The file holds no certificates.
    """
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        raise ConfigError(
            f"The file of certificates {ca_file!r} cannot be used: {_reason(error)}. "
            "SSL_CERT_FILE must name a PEM file, or be unset."
        ) from None
    return context


def _translate(error: aiohttp.ClientError) -> Failure:
    """Say in our words what aiohttp met, most specific first. Never shows a URL's query or a header."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", error.certificate_error)
            text = f"the certificate of {error.host}:{error.port} is not trusted: {why}"
            return Failure("connection", text, Scope.PROVIDER, unreached=True, tls=True)
        case aiohttp.ClientSSLError():
            text = f"no secure connection to {error.host}:{error.port}: {_reason(error.os_error)}"
            return Failure("connection", text, Scope.PROVIDER, unreached=True, tls=True)
        case aiohttp.InvalidURL():
            return Failure("connection", "the base URL is no valid URL", Scope.PROVIDER, unreached=True)
        case aiohttp.ClientProxyConnectionError():
            text = f"the proxy at {error.host}:{error.port} is not reachable: {_reason(error.os_error)}"
            return Failure("connection", text, Scope.TRANSIENT, unreached=True)
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy refused: HTTP {error.status} {error.message}"
            return Failure("connection", text, Scope.TRANSIENT, unreached=True)
        case aiohttp.ClientConnectorDNSError():
            return Failure("connection", f"there is no host {error.host!r}", Scope.TRANSIENT, unreached=True)
        case aiohttp.ClientConnectorError():
            text = f"nobody answers at {error.host}:{error.port}: {_reason(error.os_error)}"
            return Failure("connection", text, Scope.TRANSIENT, unreached=True)
        case _:
            what = str(error) or type(error).__name__
            return Failure("connection", f"the connection broke: {what}", Scope.TRANSIENT)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def _expire(key: Hashable) -> None:
    session = _sessions.pop(key, None)
    if session is not None:
        task = asyncio.get_running_loop().create_task(session.client.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)


_closing: set[asyncio.Task[None]] = set()
_parents: list[object] = []


def _forget_after_fork() -> None:
    """The parent's connections are not ours: they are neither used nor closed, for closing reaches into its loop."""
    for session in _sessions.values():
        _parents.append(session.client.connector)
        session.client.detach()
    _sessions.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


async def _close_all() -> None:
    for session in _sessions.values():
        await session.client.close()
    _sessions.clear()


bridge.at_exit(_close_all)
