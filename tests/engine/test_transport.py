"""The transport over a raw server on this machine: every way a connection ends, reuse, and a quiet end."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from batchkit._engine import transport
from batchkit._engine.transport import HttpAnswer, open_channel
from batchkit.errors import ConfigError
from batchkit.records import Scope

ROOT = Path(__file__).parents[2]
OK = b"HTTP/1.1 200 OK\r\nX-Request-Id: r-1\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Speaks raw bytes: for each request the next of ``replies``; None drops the connection, ... never answers.

    What is sent in several parts has the loop turn between them.
    """

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.asked = asyncio.Event()
        self.connections = 0
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                self.requests.append((head, await reader.readexactly(length)))
                self.asked.set()
                reply = self.replies.pop(0) if self.replies else OK
                if reply is ...:
                    continue
                if reply is None:
                    break
                parts = reply if isinstance(reply, tuple) else (reply,)
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    for _ in range(10):
                        await asyncio.sleep(0)
                framed = b"Content-Length" in parts[0] or b"Transfer-Encoding" in parts[0]
                if not framed or parts[-1].endswith(b"half"):
                    break
        writer.close()


async def closed():
    """Until all sessions of this loop are closed."""
    for budget in list(transport._sessions):
        transport._expire(budget)
    await asyncio.gather(*transport._closing)


def talk(conversation, *replies):
    """Run ``conversation(server, channel)`` with a server and an open channel, and leave nothing open."""

    async def main():
        async with Server(*replies) as server:
            channel = open_channel((object(),), {"Authorization": "Bearer k", "Content-Type": "application/json"})
            try:
                return await conversation(server, channel)
            finally:
                channel.close()
                await closed()

    return asyncio.run(main())


def post(*replies, body=b"{}", timeout=30.0):
    return talk(lambda server, channel: channel.post(server.url, body, timeout), *replies)


@pytest.fixture(autouse=True)
def sessions_of_its_own(monkeypatch):
    """Keep the sessions of the engine's loop out of loops that are not its."""
    monkeypatch.setattr(transport, "_sessions", {})
    monkeypatch.setattr(transport, "_closing", set())


def test_a_response_comes_back_whole():
    """Status, headers and body are what the server sent, and it got what was to be sent."""

    async def conversation(server, channel):
        answer = await channel.post(server.url, b'{"a": 1}', 30.0)
        return answer, server.requests

    (status, headers, body), ((head, sent),) = talk(conversation)
    assert (status, headers["x-request-id"], body) == (200, "r-1", b"{}")
    assert sent == b'{"a": 1}'
    assert b"Authorization: Bearer k" in head


LONG = b"".join(b"%d," % number for number in range(400_000))


def chunked(body, size):
    """``body`` as HTTP sends it in pieces."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])


@pytest.mark.parametrize("body", [b"", b"{}", LONG], ids=["empty", "short", "long"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("pieces", [None, 5, 50_000], ids=["whole", "small pieces", "large pieces"])
@pytest.mark.parametrize("pause", [False, True], ids=["at one go", "head first"])
def test_a_body_comes_back_whole_however_it_is_sent(body, packed, pieces, pause):
    """Plain or compressed, whole or in pieces, with its head or after it: all of it arrives, on one connection."""
    if pieces == 5:
        body = body[:1000]
    sent = gzip.compress(body) if packed else body
    head = b"HTTP/1.1 200 OK\r\n" + (b"Content-Encoding: gzip\r\n" if packed else b"")
    if pieces is None:
        head, rest = head + b"Content-Length: %d\r\n\r\n" % len(sent), sent
    else:
        head, rest = head + b"Transfer-Encoding: chunked\r\n\r\n", chunked(sent, pieces)

    async def conversation(server, channel):
        answers = [await channel.post(server.url, b"{}", 30.0) for _ in range(3)]
        return answers, server.connections

    reply = (head, rest) if pause else head + rest
    answers, connections = talk(conversation, reply, reply, reply)
    assert [answer.body for answer in answers] == [body] * 3
    assert connections == 1


@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_error_status_is_an_answer(status):
    """What a status means is not for the transport to say."""
    reply = b"HTTP/1.1 %d Oh\r\nContent-Length: 2\r\n\r\nno" % status
    assert post(reply)[0::2] == (status, b"no")


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"garbage that is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhalf",
    ],
    ids=["dropped", "half a body", "half a head", "no HTTP", "no gzip"],
)
def test_a_broken_connection_is_transient(reply):
    """A connection that breaks anywhere before the end of the body may be tried again, and was reached."""
    failure = post(reply)
    assert (failure.kind, failure.scope, failure.unreached) == ("connection", Scope.TRANSIENT, False)
    assert failure.message


def test_a_refused_connection_was_never_reached():
    """Nobody listening is told apart from a connection that broke, with a hint."""

    async def conversation(server, channel):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return await channel.post(f"http://127.0.0.1:{port}/v1", b"{}", 30.0)

    failure = talk(conversation)
    assert (failure.kind, failure.scope, failure.unreached) == ("connection", Scope.TRANSIENT, True)
    assert "nobody answers at 127.0.0.1" in failure.message


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue of connections refuses")
def test_a_silent_address_was_never_reached(monkeypatch):
    """Where nobody says a word, as behind a firewall, the connection is given up long before the request's own time."""
    monkeypatch.setattr(transport, "_CONNECT", 0.1)

    async def conversation(server, channel):
        with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            for other in (first, second):  # they fill its queue
                other.setblocking(False)
                other.connect_ex(deaf.getsockname())
            return await channel.post(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", b"{}", 60.0)

    failure = talk(conversation)
    assert (failure.kind, failure.scope, failure.unreached) == ("connection", Scope.TRANSIENT, True)
    assert failure.message == "no connection within 0.1 s"


def test_a_file_without_certificates_is_explained(tmp_path):
    """A file that is no PEM is a ConfigError that says what to set."""
    path = tmp_path / "empty.pem"
    path.write_text("")
    with pytest.raises(ConfigError, match=r"empty.pem' cannot be used.*SSL_CERT_FILE must name a PEM file"):
        transport.trusting(str(path))


def test_an_unknown_host_was_never_reached():
    """A host name nobody knows says so."""
    failure = talk(lambda server, channel: channel.post("http://no-such-host.invalid/v1", b"{}", 30.0))
    assert (failure.kind, failure.unreached) == ("connection", True)
    assert "there is no host 'no-such-host.invalid'" in failure.message


def test_a_url_that_is_none_stops_the_provider():
    """An address that cannot be one is every row's failure."""
    failure = talk(lambda server, channel: channel.post("http://:80:80/", b"{}", 30.0))
    assert (failure.kind, failure.scope, failure.unreached) == ("connection", Scope.PROVIDER, True)


def test_a_server_that_says_nothing_times_out():
    """No answer within the attempt's seconds is a transient time-out that names them."""
    failure = post(..., timeout=0.05)
    assert (failure.kind, failure.scope) == ("timeout", Scope.TRANSIENT)
    assert "0.05 s" in failure.message


def test_cancellation_passes():
    """A request that is given up ends as cancelled, not as a failure."""

    async def conversation(server, channel):
        task = asyncio.ensure_future(channel.post(server.url, b"{}", 30.0))
        await server.asked.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert talk(conversation, ...) is True


def test_requests_one_after_the_other_share_a_connection():
    """A connection is used again, by the next request, the next run, and whoever has the same budget."""

    async def main():
        budget = (object(),)
        async with Server() as server:
            for _ in range(3):
                channel = open_channel(budget, {})
                for _ in range(3):
                    assert isinstance(await channel.post(server.url, b"{}", 30.0), HttpAnswer)
                channel.close()
            await closed()
            return len(server.requests), server.connections

    assert asyncio.run(main()) == (9, 1)


def test_a_connection_the_server_gave_up_is_replaced():
    """After the server closed an idle connection the next request gets a new one."""

    async def conversation(server, channel):
        first = await channel.post(server.url, b"{}", 30.0)
        second = await channel.post(server.url, b"{}", 30.0)
        return first.status, second.status, server.connections

    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    assert talk(conversation, closing) == (200, 200, 2)


def test_requests_at_once_have_a_connection_each():
    """Nothing queues in secret: as many connections as requests in flight."""

    async def conversation(server, channel):
        answers = await asyncio.gather(*(channel.post(server.url, b"{}", 30.0) for _ in range(20)))
        return {answer.status for answer in answers}, server.connections

    statuses, connections = talk(conversation)
    assert statuses == {200}
    assert connections <= 20


def test_large_bodies_travel():
    """A body of megabytes arrives as it is, without a warning."""
    size = 3 << 20

    async def conversation(server, channel):
        answer = await channel.post(server.url, b"x" * size, 30.0)
        return answer.status, len(server.requests[0][1])

    assert talk(conversation) == (200, size)


def test_each_request_has_its_own_time():
    """Of requests on their way at once, each ends after its own seconds, whatever the order in which they began."""

    async def conversation(server, channel):
        ended = []

        async def ask(timeout):
            failure = await channel.post(server.url, b"{}", timeout)
            ended.append((timeout, failure.kind))

        await asyncio.gather(*map(ask, (1.5, 0.3, 0.9)))  # far apart, for a busy machine
        server.replies.clear()
        answer = await channel.post(server.url, b"{}", 30.0)  # the next one has all of its time
        return ended, answer.status, channel._session.watch._ends

    assert talk(conversation, ..., ..., ...) == ([(0.3, "timeout"), (0.9, "timeout"), (1.5, "timeout")], 200, {})


def test_cancellation_passes_though_the_time_is_up():
    """A request that is given up in the very moment in which its time is up ends as cancelled."""

    async def conversation(server, channel):
        task = asyncio.ensure_future(channel.post(server.url, b"{}", 30.0))
        await server.asked.wait()
        watch = channel._session.watch
        (asking,) = watch._ends
        watch._ends[asking] = 0.0
        watch._look()
        assert watch._overdue == {asking}
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), watch._ends, watch._overdue

    assert talk(conversation, ...) == (True, {}, set())


def test_an_idle_session_closes(monkeypatch):
    """A session that nobody used for a while is closed, and one in use is not."""
    monkeypatch.setattr(transport, "_IDLE", 0.0)

    async def main():
        budget = (object(),)
        first, second = open_channel(budget, {}), open_channel(budget, {})
        first.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (budget, None, frozenset()) in transport._sessions
        client = transport._sessions[budget, None, frozenset()].client
        second.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (budget, None, frozenset()) not in transport._sessions
        await asyncio.gather(*transport._closing)
        return client.closed

    assert asyncio.run(main()) is True


def test_a_session_borrowed_again_stays_open(monkeypatch):
    """A run that begins before the session closed takes it over."""
    monkeypatch.setattr(transport, "_IDLE", 0.0)

    async def main():
        budget = (object(),)
        channel = open_channel(budget, {})
        channel.close()
        again = open_channel(budget, {})
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        assert not transport._sessions[budget, None, frozenset()].client.closed
        assert again._session is channel._session
        again.close()
        await closed()

    asyncio.run(main())


def test_no_cookie_is_kept():
    """What one server sets as a cookie is not sent back."""
    reply = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}"

    async def conversation(server, channel):
        await channel.post(server.url, b"{}", 30.0)
        await channel.post(server.url, b"{}", 30.0)
        return server.requests[1][0]

    assert b"cookie" not in talk(conversation, reply).lower()


SCRIPT = """
import http.server, json, os, threading
import pandas as pd
import batchkit as bk

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        content = json.dumps({"label": "x"})
        body = json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
provider = bk.OpenAICompatible("m", base_url=f"http://127.0.0.1:{server.server_port}/v1")
def label():
    frame = pd.DataFrame({"t": list("abcde")})
    return frame.llm.classify("t", ["x", "y"], route=provider, progress=False)["label"].tolist()
print(label())
"""


def script(rest="", *flags):
    """Run the script above in a process of its own; it must leave nothing but its output."""
    text = SCRIPT + textwrap.dedent(rest)
    done = subprocess.run(
        [sys.executable, *flags, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    # A loaded machine is slow, of which asyncio complains where it is strict.
    complaints = [line for line in done.stderr.splitlines() if not line.startswith("Executing ")]
    assert (done.returncode, complaints) == (0, [])
    return done.stdout.splitlines()


ALL = "['x', 'x', 'x', 'x', 'x']"


@pytest.mark.parametrize("flags", [(), ("-X", "dev", "-W", "error")], ids=["plain", "strict"])
def test_a_script_ends_quietly(flags):
    """Warm connections at the end of a script are closed without a word, even where warnings are errors."""
    rest = "server.shutdown()\nserver.server_close()" if flags else ""
    assert script(rest, *flags) == [ALL]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_child_has_connections_of_its_own():
    """A child forked after a run makes its own loop and connections, and the parent's still work."""
    rest = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads is the point
    child = os.fork()
    if not child:
        print(label(), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(label())
    """
    assert script(rest) == [ALL, ALL, ALL]


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
def test_a_host_that_can_be_none_stops_the_provider(monkeypatch, host):
    """An address no host can have is the base URL's fault, and not one of this package."""
    # The real one encodes a name before it asks anybody; the tests' own does not.
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *_, **__: name.encode("idna"))
    failure = talk(lambda _, channel: channel.post(f"http://{host}/v1", b"{}", 5.0))
    assert (failure.kind, failure.scope, failure.unreached) == ("connection", Scope.PROVIDER, True)
    assert "base URL" in failure.message
