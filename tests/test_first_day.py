"""What somebody sees who makes one of the commonest mistakes of a first day: all of it, word for word.

The texts stand in ``tests/snapshots/first_day``; ``UPDATE_SNAPSHOTS=1`` writes them anew. Read them aloud
when they change: each alone must tell a newcomer what to do.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import ssl
import threading
import warnings
from contextlib import closing, contextmanager
from pathlib import Path

import pandas as pd
import pytest
import trustme

import batchkit as bk
from batchkit._playground import Server

SNAPSHOTS = Path(__file__).parent / "snapshots" / "first_day"
FRAME = pd.DataFrame({"text": [f"row {row}" for row in range(6)]})
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def always(failure):
    """Fail like this at every request."""
    return lambda text, nth: failure


def first(text, labels):
    """Answer with the first label."""
    return labels[0] if labels else "yes"


@pytest.fixture(scope="module")
def play():
    """The servers that one meets on a first day."""
    servers = {
        "right": Server(),
        "keyed": Server(api_key="sk-proj-right"),
        "modelled": Server(models=["gpt-6-luna"]),
        "ollama": Server("ollama", models=["llama3.2"]),
        "poor": Server(script=always("quota")),
        "daily": Server("gemini", script=always("daily_quota")),
        "elsewhere": Server(script=always("forbidden")),
        "dashscope": Server(vendor="qwen", api_key="sk-of-another-region"),
        "groq": Server(vendor="groq", script=always("rate_limit_long")),
        "pathless": Server(script=always("wrong_path")),
    }
    with bk.playground(answer=first, **servers) as running:
        yield running


@pytest.fixture(autouse=True)
def a_plain_machine(monkeypatch, tmp_path):
    """Begin without proxies, certificates and `.env` of whoever runs the tests."""
    monkeypatch.chdir(tmp_path)
    for name in (*PROXY_VARIABLES, *CA_VARIABLES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def behind(monkeypatch):
    """Let a server of the playground stand for all the internet: it is what HTTP_PROXY names."""

    def behind(server):
        monkeypatch.setenv("HTTP_PROXY", server.url)

    return behind


def free_port():
    """Find a port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def label(make):
    """Make a provider and label the rows with it."""
    return FRAME.llm.classify("text", ["yes", "no"], route=make(), progress=False, details="full")


def seen(make):
    """Return everything a user sees: the exception, or the warning and what stands at the rows."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            out = label(make)
        except bk.BatchkitError as error:
            return _without_ports(f"{type(error).__name__}: {error}\n")
    said = [f"{warning.category.__name__}: {warning.message}\n" for warning in caught]
    rows = out.groupby(["label_error", "label_message"], observed=True, sort=False).size()
    said += [f"\n{count} rows: {kind}\n{message}\n" for (kind, message), count in rows.items()]
    return _without_ports("".join(said))


def _without_ports(text):
    text = text.replace("record layer failure", "wrong version number")  # as newer versions of OpenSSL put it
    return re.sub(r"(?<=:)\d{4,5}\b", "PORT", text)


class _Completions(http.server.BaseHTTPRequestHandler):
    """Answers every question with yes."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"content": json.dumps({"label": "yes", "confidence": 1.0})}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Say nothing."""


@contextmanager
def tls_server(certificate):
    """Serve completions over TLS with a certificate; yields the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Completions) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def guarded_proxy():
    """Serve as a proxy that wants a password, whatever it is asked; yields the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with closing(listener):
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def check(name, text):
    """Compare a text with its snapshot."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def openai(model="gpt-6-luna", **settings):
    """Make a provider at OpenAI's own address, but for TLS, which would keep the proxy from answering."""
    return bk.OpenAI(model, base_url="http://api.openai.com/v1", **settings)


def test_wrong_key(play, behind, monkeypatch):
    """A key that OpenAI does not know."""
    behind(play.keyed)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-wrong")
    check("wrong_key", seen(openai))


def test_no_key():
    """No key anywhere."""
    check("no_key", seen(openai))


def test_key_with_a_line_break():
    """A key that was copied with a line break in it."""
    check("key_with_a_line_break", seen(lambda: openai(api_key="sk-proj-one\ntwo")))


def test_key_in_quotes(monkeypatch):
    """A key whose quotes became a part of it, as with `%env` in a notebook."""
    monkeypatch.setenv("OPENAI_API_KEY", "'sk-proj-one'")
    check("key_in_quotes", seen(openai))


def test_wrong_model(play, behind):
    """A model that is not there."""
    behind(play.modelled)
    check("wrong_model", seen(lambda: openai("gpt-6-lunar", api_key="sk-proj-right")))


def test_ollama_not_running():
    """Ollama was not started."""
    check("ollama_not_running", seen(lambda: bk.Ollama("qwen3", base_url=f"http://localhost:{free_port()}")))


def test_model_not_pulled(play):
    """Ollama runs, but has not got the model."""
    check("model_not_pulled", seen(lambda: bk.Ollama("qwen3", base_url=play.ollama.url)))


def test_no_quota(play, behind):
    """An account without credit."""
    behind(play.poor)
    check("no_quota", seen(lambda: openai(api_key="sk-proj-right")))


def test_daily_quota(play, behind):
    """The free requests of the day are used up."""
    behind(play.daily)
    url = "http://generativelanguage.googleapis.com"
    check("daily_quota", seen(lambda: bk.Gemini("gemini-3.5-flash-lite", base_url=url, api_key="AIza")))


def test_wrong_country(play, behind):
    """A vendor that does not serve the country."""
    behind(play.elsewhere)
    check("wrong_country", seen(lambda: openai(api_key="sk-proj-right")))


def test_key_of_another_region(play, behind):
    """A key for another region of the same vendor."""
    behind(play.dashscope)
    url = "http://dashscope-intl.aliyuncs.com/compatible-mode/v1"
    make = lambda: bk.OpenAICompatible("qwen-plus", vendor="qwen", base_url=url, api_key="sk-mine")  # noqa: E731
    check("key_of_another_region", seen(make))


def test_proxy_needed():
    """A machine that reaches nothing without its company's proxy."""
    check("proxy_needed", seen(lambda: bk.OpenAI("gpt-6-luna", api_key="sk-proj-right")))


def test_proxy_down(monkeypatch):
    """A proxy that is named and not there, with a password that nobody is shown."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{free_port()}")
    text = seen(lambda: bk.OpenAI("gpt-6-luna", api_key="sk-proj-right"))
    assert "secret" not in text
    check("proxy_down", text)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_wants_a_password(monkeypatch, scheme):
    """A proxy that wants to know who asks."""
    with guarded_proxy() as port:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://127.0.0.1:{port}")
        url = f"{scheme}://api.openai.com/v1"
        text = seen(lambda: bk.OpenAI("gpt-6-luna", api_key="sk-proj-right", base_url=url))
    check(f"proxy_wants_a_password_{scheme}", text)


def test_unknown_certificate(monkeypatch, tmp_path):
    """A company's own certificate is explained, and trusted once SSL_CERT_FILE names who signed it."""
    authority = trustme.CA(organization_name="Acme")
    with tls_server(authority.issue_cert("localhost")) as port:
        make = lambda: bk.OpenAICompatible("m", base_url=f"https://localhost:{port}/v1")  # noqa: E731
        check("unknown_certificate", seen(make))
        authority.cert_pem.write_to_path(str(tmp_path / "acme.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "acme.pem"))
        assert label(make)["label"].tolist() == ["yes"] * len(FRAME)


def test_certificate_for_another_name(monkeypatch, tmp_path):
    """A certificate that is trusted, but not for this address."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with tls_server(authority.issue_cert("llm.example.com")) as port:
        make = lambda: bk.OpenAICompatible("m", base_url=f"https://localhost:{port}/v1")  # noqa: E731
        check("certificate_for_another_name", seen(make))


def test_https_where_there_is_none(play):
    """An address with https:// of a server that speaks plain http."""
    url = play.right.base_url.replace("http:", "https:")
    check("https_where_there_is_none", seen(lambda: bk.OpenAICompatible("m", base_url=url)))


def test_address_that_lacks_a_part(play):
    """A server that is there, and knows nothing of the path."""
    check("address_that_lacks_a_part", seen(lambda: bk.OpenAICompatible("m", base_url=f"{play.pathless.url}/api")))


def test_rate_limit_of_a_free_tier(play, behind):
    """A free plan that is used up for longer than a run would wait."""
    behind(play.groq)
    url = "http://api.groq.com/openai/v1"
    make = lambda: bk.OpenAICompatible("llama-3.3-70b-versatile", vendor="groq", base_url=url, api_key="gsk_a")  # noqa: E731
    check("rate_limit_of_a_free_tier", seen(make))


def test_a_proxy_is_used_and_left_out_as_told(play, behind, monkeypatch):
    """HTTP_PROXY carries what is asked, NO_PROXY goes around it, and this machine is never asked through it."""
    behind(play.right)
    assert label(lambda: openai(api_key="k"))["label"].tolist() == ["yes"] * len(FRAME)
    assert play.right.requests[-1].path == "/v1/chat/completions"
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    assert label(play.right.provider)["label"].tolist() == ["yes"] * len(FRAME)
    monkeypatch.setenv("NO_PROXY", "example.com,api.openai.com")
    assert "there is no host 'api.openai.com'" in seen(lambda: openai(api_key="k"))


def test_every_snapshot_is_somebodys():
    """No snapshot outlives its test."""
    source = Path(__file__).read_text("utf-8")
    asked = set(re.findall(r'check\(f?"(\w+?)(?:_\{scheme\})?"', source))
    assert {re.sub("_https?$", "", path.stem) for path in SNAPSHOTS.iterdir()} == asked
