"""The HTTP side of a playground server: carries out what `faults`, `judge` and `wire` decide. Uses aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, NoReturn

import orjson
from aiohttp import web

from batchkit._playground.answers import Answerer
from batchkit._playground.failures import DATE, Failure, Inside, Raw, Silence, Twist, find_failure
from batchkit._playground.faults import Bucket, Draw, draw
from batchkit._playground.judge import Asked, Verdict, answer_value, count_tokens, wrong_label
from batchkit._playground.limits import limit_headers, plain
from batchkit._playground.rules import RuleBook, surprises
from batchkit._playground.server import Log, Request, Server, check_step
from batchkit._playground.unsupported import unsupported
from batchkit._playground.wires import Doors, Refusal, Said, Visit, Wire

__all__ = ["LARGEST_BODY", "Site"]

LARGEST_BODY = 64 * 1024**2
"""Bytes of the largest request body that is read."""

_PLAIN_FAULTS = frozenset({"hang", "drop", "server_error", "garbage"})
"""Faults drawn by chance that are failures as the catalogue has them."""
_AS_USUAL = Twist(lambda said: said)
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_BYTES_PER_TOKEN = 4


class _Exchange:
    """One request while it is being dealt with. Its end is logged once."""

    def __init__(self, site: Site, path: str, connections: int) -> None:
        self.path = path
        self.wire = site.wire
        self.key: str | None = None
        self.fate = "abandoned"
        self.status: int | None = None
        self.text = ""
        self.latency = 0.0
        self.input_tokens = 0
        self.output_tokens = 0
        self.holds_slot = False
        self.is_question = False
        self.reserved = 0
        """Tokens taken for it that are not settled yet."""
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
        self._site.settle(self)
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
        self._doors = Doors(server.dialect, server.vendor)
        self.wire: Wire = self._doors.wire
        self._rule_books: dict[Wire, RuleBook] = {}
        limits = {"requests": server.rpm, "tokens": server.tpm}
        now = time.monotonic()
        self._buckets = {thing: Bucket(limit, now) for thing, limit in limits.items() if limit is not None}
        self._histories: dict[bytes, _History] = {}
        self._ids = itertools.count(1)
        self._steps = itertools.count()

    async def open(self) -> str:
        """Listen on a free port of 127.0.0.1, on the same of ::1 where there is one, and return the URL."""
        # The request handler is told when its client leaves, so that nobody waits in vain.
        self._web = web.Server(
            self._handle,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=3600.0,
        )
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(self._web, "127.0.0.1", 0, backlog=1024)
        host, port = listener.sockets[0].getsockname()[:2]
        self._listeners = [listener]
        with contextlib.suppress(OSError):  # no IPv6 on this machine, or the port is another's there
            self._listeners.append(await loop.create_server(self._web, "::1", port, backlog=1024))
        return f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening and hang up on everybody."""
        for listener in self._listeners:
            listener.close()
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
            return await self._answer(request, exchange)
        finally:
            exchange.end()

    async def _answer(self, request: web.BaseRequest, exchange: _Exchange) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(exchange, Refusal(413, f"The request is larger than {LARGEST_BODY} bytes."))
        visit = self._doors.find(request.method, exchange.path)
        if visit is None:
            return self._refuse(exchange, Refusal(404, f"Invalid URL ({request.method} {request.path})", "unknown_url"))
        wire = exchange.wire = visit.wire
        exchange.key = wire.key(request.headers)
        if self._server.api_key is not None and exchange.key != self._server.api_key:
            return self._refuse(exchange, wire.wrong_key())
        if visit.wants == "models":
            exchange.fate = "models"
            return self._respond(exchange, 200, wire.models(self._server.models or ("playground",)))
        exchange.is_question = True
        asked = self._read(body, request.headers, visit)
        if isinstance(asked, Refusal):
            return self._refuse(exchange, asked)
        exchange.text = asked.text
        exchange.input_tokens = asked.input_tokens
        over = self._over_a_limit(exchange, asked)
        if over is not None:
            return over
        return await self._serve(request, asked, exchange)

    def _read(self, body: bytes, headers: Mapping[str, str], visit: Visit) -> Asked | Refusal:
        try:
            parsed = orjson.loads(body)
        except orjson.JSONDecodeError:
            parsed = None
        asked = self._by_the_rules(parsed, headers, visit)
        if isinstance(asked, Refusal):
            self.log.violations.append(f"HTTP {asked.status}: {asked.message}")
            return asked
        wire = visit.wire
        if self._server.models is not None and asked.model not in self._server.models:
            return wire.unknown_model(asked.model)
        if self._server.refuses:
            refusal = unsupported(wire.dialect, wire.vendor, parsed, self._server.refuses)
            if refusal is not None:
                return refusal
        self.log.violations += surprises(wire.dialect, wire.vendor, parsed, asked)
        return asked

    def _by_the_rules(self, parsed: Any, headers: Mapping[str, str], visit: Visit) -> Asked | Refusal:
        wire = visit.wire
        if isinstance(parsed, dict):
            model = visit.model or str(parsed.get("model", ""))
            refusal = self._rule_book(wire).broken(parsed, headers, model)
            if refusal is not None:
                return refusal
        return wire.read(parsed, headers, visit.model)

    def _rule_book(self, wire: Wire) -> RuleBook:
        book = self._rule_books.get(wire)
        if book is None:
            book = self._rule_books[wire] = RuleBook(wire.dialect, wire.vendor)
        return book

    def _over_a_limit(self, exchange: _Exchange, asked: Asked) -> web.Response | None:
        most = self._server.max_concurrency
        if most is not None and self.busy >= most:
            exchange.fate = "over_concurrency"
            # Ollama has a queue and no limits; when it is full the server is busy.
            status = 503 if self._server.dialect == "ollama" else 429
            refusal = Refusal(status, f"Too many requests at once: {most} are being answered.", "rate_limit_exceeded")
            return self._error(exchange, refusal)
        now = time.monotonic()
        requests, tokens = self._buckets.get("requests"), self._buckets.get("tokens")
        wait = 0.0 if requests is None else requests.take(now)
        if wait:
            exchange.fate = "over_rpm"
            return self._error(exchange, self._too_fast("requests", self._server.rpm or 0.0, wait))
        size = asked.input_tokens + (asked.cap or 0)
        wait = 0.0 if tokens is None else tokens.take(now, size)
        if wait:
            if requests is not None:
                requests.give_back(now, 1.0)
            exchange.fate = "over_tpm"
            return self._error(exchange, self._too_fast("tokens", self._server.tpm or 0.0, wait))
        exchange.reserved = size
        self.busy += 1
        exchange.holds_slot = True
        return None

    def settle(self, exchange: _Exchange) -> None:
        """Put back the tokens that were taken for an answer and are not in it."""
        tokens = self._buckets.get("tokens")
        if tokens is not None and exchange.reserved:
            used = exchange.input_tokens + exchange.output_tokens
            tokens.give_back(time.monotonic(), exchange.reserved - used)
        exchange.reserved = 0

    def _too_fast(self, thing: str, limit: float, wait: float) -> Refusal:
        message = f"Limit of {plain(limit)} {thing} per minute reached."
        if self._server.dialect == "gemini":
            delay = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{wait:.3f}s"}]
            return Refusal(429, message, details=delay)
        headers = {"retry-after": str(math.ceil(wait))}
        if self._server.dialect not in ("openai", "responses"):
            return Refusal(429, message, "rate_limit_exceeded", headers=headers)
        headers["retry-after-ms"] = str(math.ceil(wait * 1000))
        return Refusal(429, message, "rate_limit_exceeded", kind=thing, headers=headers)

    async def _serve(self, request: web.BaseRequest, asked: Asked, exchange: _Exchange) -> web.StreamResponse:
        history = self._remember(asked)
        chance = self._draw(asked, history)
        exchange.latency = chance.latency
        try:
            fate, failure = self._fate(asked, chance, history)
            outcome = self._said(asked, chance, failure) if isinstance(failure, Twist) else failure
        except Exception as error:  # noqa: BLE001 (a user's function may raise anything)
            await exchange.wait("answer_raised")
            return self._error(exchange, Refusal(500, f"No answer could be made. {type(error).__name__}: {error}"))
        match outcome:
            case Silence():
                return await _say_nothing(outcome, request, exchange)
            case Said():
                await exchange.wait("truncated" if outcome.truncated and failure is _AS_USUAL else fate)
                exchange.output_tokens = outcome.output_tokens
                return self._respond(exchange, 200, exchange.wire.reply(asked, outcome))
            case _:
                await exchange.wait(fate)
                return self._fail(exchange, outcome)

    def _fate(self, asked: Asked, chance: Draw, history: _History) -> tuple[str, Failure]:
        """Say what is to become of a request, by the script or else by chance, and how."""
        step = self._step(asked.text, history.times_asked)
        fate = chance.fate if step == "ok" else step
        if step == "ok" and fate not in _PLAIN_FAULTS:
            return fate, _AS_USUAL
        return fate, find_failure(fate, self._server.dialect, self._server.vendor)

    def _step(self, text: str, nth: int) -> str:
        script = self._server.script
        if script is None:
            return "ok"
        if callable(script):
            step = script(text, nth)
            check_step(self._server, step)
            return step
        at = next(self._steps)
        return script[at] if at < len(script) else "ok"

    def _fail(self, exchange: _Exchange, failure: Refusal | Raw | Inside) -> web.Response:
        if isinstance(failure, Raw):
            return self._respond(exchange, failure.status, failure.body, failure.headers, failure.content_type)
        if isinstance(failure, Inside):
            return self._respond(exchange, 200, exchange.wire.error(failure.refusal, self._request_id()))
        message = failure.message.replace("{key}", exchange.key or "")
        # Of the time of the answer: the catalogue of failures has no clock.
        date = formatdate(time.time() + 1, usegmt=True)
        headers = {name: date if value == DATE else value for name, value in failure.headers.items()}
        return self._error(exchange, replace(failure, message=message, headers=headers))

    def _remember(self, asked: Asked) -> _History:
        # Not the text itself, which may be a megabyte, and not hash(), under which two texts may meet.
        key = hashlib.blake2b(asked.text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        history = self._histories.setdefault(key, _History(0, asked.cap))
        history.times_asked += 1
        return history

    def _draw(self, asked: Asked, history: _History) -> Draw:
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

    def _said(self, asked: Asked, chance: Draw, twist: Twist) -> Said:
        value = answer_value(asked, self._verdict(asked, chance))
        plain = isinstance(value, str) and asked.schema is None
        text = value.encode("utf-8", "replace").decode() if plain else orjson.dumps(value).decode()
        shown = text[: len(text) // 2] if chance.fate == "truncated" else text
        tokens = count_tokens(shown)
        if asked.cap is not None and tokens > asked.cap:
            shown = text.encode()[: asked.cap * _BYTES_PER_TOKEN].decode("utf-8", "ignore")
            tokens = count_tokens(shown)
        whole = len(shown) == len(text)
        arguments = value if whole and isinstance(value, Mapping) else None
        said = Said(shown, arguments, not whole, tokens, chance.serial)
        if twist is _AS_USUAL:
            return said
        said = twist.change(said)
        return replace(said, output_tokens=count_tokens(said.thought or "", said.refusal or said.text))

    def _refuse(self, exchange: _Exchange, refusal: Refusal) -> web.Response:
        exchange.fate = "refused"
        return self._error(exchange, refusal)

    def _error(self, exchange: _Exchange, refusal: Refusal) -> web.Response:
        request_id = self._request_id()
        body = exchange.wire.error(refusal, request_id)
        return self._respond(exchange, refusal.status, body, refusal.headers, request_id=request_id)

    def _respond(
        self,
        exchange: _Exchange,
        status: int,
        body: Any,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
        request_id: str | None = None,
    ) -> web.Response:
        exchange.status = status
        self.settle(exchange)
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        usual = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        limits = self._limit_headers() if exchange.is_question else {}
        all_headers = {"content-type": content_type or usual, **limits, **(headers or {})}
        if exchange.wire.request_id_header is not None:
            all_headers[exchange.wire.request_id_header] = request_id or self._request_id()
        return web.Response(body=raw, status=status, reason=_PHRASES.get(status, "Unknown"), headers=all_headers)

    def _limit_headers(self) -> dict[str, str]:
        if not self._server.limit_headers:
            return {}
        now = time.monotonic()
        gauges = {thing: bucket.read(now) for thing, bucket in self._buckets.items()}
        return limit_headers(self._server.vendor or self._server.dialect, gauges, time.time())

    def _request_id(self) -> str:
        return f"req_{next(self._ids):012d}"


async def _say_nothing(silence: Silence, request: web.BaseRequest, exchange: _Exchange) -> NoReturn:
    if silence.fate == "hang":
        exchange.fate = "hang"
    else:
        await exchange.wait("drop")
        # Before hanging up, for the client may be back sooner than this task goes on.
        exchange.end()
        if request.transport is not None:
            request.transport.abort()
    # Until the client leaves, which cancels this.
    await asyncio.get_running_loop().create_future()
    raise ConnectionError("Nobody was to end this wait.")
