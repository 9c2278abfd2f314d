"""The HTTP side of a playground server: carries out what `faults`, `judge` and `wire` decide. Uses aiohttp."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn

import orjson
from aiohttp import web

from batchkit._playground.answers import Answerer
from batchkit._playground.faults import Bucket, Draw, draw
from batchkit._playground.judge import Asked, Verdict, answer_value, count_tokens, wrong_label
from batchkit._playground.server import Log, Request, Server
from batchkit._playground.wire import WIRES, Refusal, Said

__all__ = ["LARGEST_BODY", "Site"]

LARGEST_BODY = 64 * 1024**2
"""Bytes of the largest request body that is read."""

_NOT_JSON = b"<html><body>upstream hiccup</body></html>"
_BYTES_PER_TOKEN = 4


class _Exchange:
    """One request while it is being dealt with. Its end is logged once."""

    def __init__(self, site: Site, path: str, connections: int) -> None:
        self.path = path
        self.fate = "abandoned"
        self.status: int | None = None
        self.text = ""
        self.latency = 0.0
        self.input_tokens = 0
        self.output_tokens = 0
        self.holds_slot = False
        self._connections = connections
        self._site = site
        self._arrived = time.monotonic()
        self._ended = False
        site.log.enter(connections)

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._site.busy -= self.holds_slot
        request = Request(
            path=self.path,
            fate=self.fate,
            status=self.status,
            text=self.text,
            arrived=self._arrived,
            answered=time.monotonic(),
            latency=self.latency,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            connections=self._connections,
        )
        self._site.log.leave(request)

    async def wait(self, fate: str) -> None:
        """Let the latency pass; if the client is still there then, ``fate`` is what became of the request."""
        remaining = self._arrived + self.latency - time.monotonic()
        if remaining > 0:
            await asyncio.sleep(remaining)
        self.fate = fate


@dataclass(slots=True)
class _History:
    """What a server remembers of one text."""

    times_asked: int
    first_cap: int | None


class Site:
    """One listening server. To be used on one event loop."""

    def __init__(self, name: str, server: Server, seed: int, answerer: Answerer) -> None:
        self.log = Log()
        self.busy = 0
        self._name = name
        self._server = server
        self._seed = seed
        self._answerer = answerer
        self._wire = WIRES[server.dialect]
        self._bucket = None if server.rpm is None else Bucket(server.rpm, time.monotonic())
        self._histories: dict[bytes, _History] = {}
        self._ids = itertools.count(1)

    async def open(self) -> str:
        """Listen on a free port of 127.0.0.1 and return the URL."""
        # The request handler is told when its client leaves, so that nobody waits in vain.
        self._web = web.Server(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
        )
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._web, "127.0.0.1", 0, backlog=1024)
        host, port = self._listener.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening and hang up on everybody."""
        self._listener.close()
        for connection in self._web.connections:
            if connection.transport is not None:
                connection.transport.abort()
        # Lets each handler see that its client is gone, which ends it.
        await asyncio.sleep(0)
        await self._web.shutdown(timeout=1.0)

    def _make_request(self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=LARGEST_BODY)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/")
        exchange = _Exchange(self, path, len(self._web.connections))
        try:
            return await self._answer(request, path.removeprefix("/v1"), exchange)
        finally:
            exchange.end()

    async def _answer(self, request: web.BaseRequest, path: str, exchange: _Exchange) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(exchange, Refusal(413, f"The request is larger than {LARGEST_BODY} bytes."))
        refusal = self._refuse_at_the_door(request, path)
        if refusal is not None:
            return self._refuse(exchange, refusal)
        if path == "/models":
            exchange.fate = "models"
            return self._respond(exchange, 200, self._wire.models(self._server.models or ("playground",)))
        asked = self._read(body, request.headers)
        if isinstance(asked, Refusal):
            return self._refuse(exchange, asked)
        exchange.text = asked.text
        exchange.input_tokens = asked.input_tokens
        over = self._over_a_limit(exchange)
        if over is not None:
            return over
        return await self._serve(request, asked, exchange)

    def _refuse_at_the_door(self, request: web.BaseRequest, path: str) -> Refusal | None:
        wanted = {"/models": "GET", self._wire.path: "POST"}.get(path)
        if wanted != request.method:
            return Refusal(404, f"Invalid URL ({request.method} {request.path})", "unknown_url")
        if self._server.api_key is not None and self._wire.key(request.headers) != self._server.api_key:
            return Refusal(401, "Incorrect API key provided.", "invalid_api_key")
        return None

    def _read(self, body: bytes, headers: Mapping[str, str]) -> Asked | Refusal:
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            parsed = None
        asked = self._wire.read(parsed, headers)
        if isinstance(asked, Refusal) or self._server.models is None or asked.model in self._server.models:
            return asked
        return Refusal(404, f"The model `{asked.model}` does not exist.", "model_not_found", "model")

    def _over_a_limit(self, exchange: _Exchange) -> web.Response | None:
        most = self._server.max_concurrency
        if most is not None and self.busy >= most:
            exchange.fate = "over_concurrency"
            refusal = Refusal(429, f"Too many requests at once: {most} are being answered.", "rate_limit_exceeded")
            return self._error(exchange, refusal)
        wait = 0.0 if self._bucket is None else self._bucket.take(time.monotonic())
        if wait:
            exchange.fate = "over_rpm"
            refusal = Refusal(429, f"Limit of {self._server.rpm:g} requests per minute reached.", "rate_limit_exceeded")
            return self._error(exchange, refusal, {"retry-after": str(math.ceil(wait))} | self._exact_wait(wait))
        self.busy += 1
        exchange.holds_slot = True
        return None

    def _exact_wait(self, wait: float) -> dict[str, str]:
        return {"retry-after-ms": str(math.ceil(wait * 1000))} if self._server.dialect == "openai" else {}

    async def _serve(self, request: web.BaseRequest, asked: Asked, exchange: _Exchange) -> web.StreamResponse:
        chance = self._draw(asked)
        exchange.latency = chance.latency
        match chance.fate:
            case "hang":
                exchange.fate = "hang"
                return await _until_the_client_leaves()
            case "drop":
                await exchange.wait("drop")
                # Before hanging up, for the client may be back sooner than this task goes on.
                exchange.end()
                if request.transport is not None:
                    request.transport.abort()
                return await _until_the_client_leaves()
            case "server_error":
                await exchange.wait("server_error")
                return self._error(exchange, Refusal(500, "The server had an error while processing your request."))
            case "garbage":
                await exchange.wait("garbage")
                return self._respond(exchange, 200, _NOT_JSON)
            case _:
                return await self._reply(asked, chance, exchange)

    async def _reply(self, asked: Asked, chance: Draw, exchange: _Exchange) -> web.Response:
        try:
            said = self._said(asked, self._verdict(asked, chance), chance)
        except Exception as error:  # noqa: BLE001 (a user's function may raise anything)
            await exchange.wait("answer_raised")
            return self._error(exchange, Refusal(500, f"No answer could be made. {type(error).__name__}: {error}"))
        await exchange.wait("truncated" if said.truncated else chance.fate)
        exchange.output_tokens = said.output_tokens
        return self._respond(exchange, 200, self._wire.reply(asked, said))

    def _draw(self, asked: Asked) -> Draw:
        # Not the text itself, which may be a megabyte, and not hash(), under which two texts may meet.
        key = hashlib.blake2b(asked.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        history = self._histories.setdefault(key, _History(0, asked.cap))
        history.times_asked += 1
        chance = draw(self._server, self._seed, self._name, asked.text, history.times_asked)
        has_room = chance.fate == "truncated" and asked.cap != history.first_cap
        has_no_labels = chance.fate == "invalid" and not asked.labels
        if has_room or has_no_labels:
            return Draw("answered", chance.latency, chance.serial)
        return chance

    def _verdict(self, asked: Asked, chance: Draw) -> Verdict:
        if chance.fate == "invalid":
            return Verdict(wrong_label(asked.labels), 0.5)
        return self._answerer(asked)

    def _said(self, asked: Asked, verdict: Verdict, chance: Draw) -> Said:
        value = answer_value(asked, verdict)
        plain = isinstance(value, str) and asked.schema is None
        text = value.encode("utf-8", "replace").decode() if plain else orjson.dumps(value).decode()
        length = len(text) // 2 if chance.fate == "truncated" else len(text)
        if asked.cap is not None and count_tokens(text[:length]) > asked.cap:
            length = len(text.encode()[: asked.cap * _BYTES_PER_TOKEN].decode("utf-8", "ignore"))
        whole = length == len(text)
        arguments = value if whole and isinstance(value, Mapping) else None
        return Said(text[:length], arguments, not whole, count_tokens(text[:length]), chance.serial)

    def _refuse(self, exchange: _Exchange, refusal: Refusal) -> web.Response:
        exchange.fate = "refused"
        return self._error(exchange, refusal)

    def _error(self, exchange: _Exchange, refusal: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
        request_id = self._request_id()
        return self._respond(exchange, refusal.status, self._wire.error(refusal, request_id), headers, request_id)

    def _respond(
        self,
        exchange: _Exchange,
        status: int,
        body: Mapping[str, Any] | bytes,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> web.Response:
        exchange.status = status
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        content_type = "text/html" if isinstance(body, bytes) else "application/json"
        all_headers = {
            "content-type": content_type,
            self._wire.request_id_header: request_id or self._request_id(),
            **(headers or {}),
        }
        return web.Response(body=raw, status=status, reason=HTTPStatus(status).phrase, headers=all_headers)

    def _request_id(self) -> str:
        return f"req_{next(self._ids):012d}"


async def _until_the_client_leaves() -> NoReturn:
    """Wait to be cancelled, which happens when the connection is gone."""
    await asyncio.get_running_loop().create_future()
    raise ConnectionError("Nobody was to end this wait.")
