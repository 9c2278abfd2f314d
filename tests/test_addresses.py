"""However a server's address is written, it is one server: same answers, same limits, same place in the journal."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import limits
from batchkit._playground import Server
from batchkit._playground.wires import VENDORS

FRAME = pd.DataFrame({"text": [f"row {row}" for row in range(6)]})
DIALECTS = {"openai": "/v1", "responses": "/v1", "anthropic": "/v1", "gemini": "/v1beta", "ollama": "/v1"}
SPEAKERS = {**DIALECTS, **{vendor: VENDORS[vendor] or "/v1" for vendor in VENDORS if vendor != "azure"}}


def has_ipv6():
    """Say whether this machine has the loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def hosts(server):
    """List the names of this machine, each with the server's port."""
    names = ("127.0.0.1", "localhost", *(("[::1]",) if has_ipv6() else ()))
    return [f"{name}:{urlsplit(server.url).port}" for name in names]


def first(text, labels):
    """Answer with the first label."""
    return labels[0] if labels else "yes"


@pytest.fixture(scope="module")
def play():
    """One server for each dialect and vendor."""
    servers = {
        speaker: Server(vendor=speaker) if speaker in VENDORS else Server(speaker) for speaker in [*SPEAKERS, "azure"]
    }
    with bk.playground(answer=first, **servers) as running:
        yield running


def label(provider, journal):
    """Label the rows and return the run."""
    FRAME.llm.classify("text", ["yes", "no"], route=provider, progress=False, journal=journal)
    return bk.last_run()


def make(server, **settings):
    """Make a provider of the server's vendor; what is nobody's profile is a compatible server."""
    return server.provider(**({"vendor": None} if server.name == "moonshot" else {}), **settings)


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_spellings_of_an_address_are_one_place(play, speaker, tmp_path):
    """With or without version and slash, by any name of this machine: one gate, and no row is asked twice."""
    server, version = play[speaker], SPEAKERS[speaker]
    # What stands before the version is a part of the address that cannot be left out.
    before = version.removesuffix("/v1").removesuffix("/v1beta")
    ends = (before, f"{before}/", version, f"{version}/")
    providers = [make(server, base_url=f"http://{host}{end}") for host in hosts(server) for end in ends]
    already = len(server.requests)
    runs = [label(provider, tmp_path / "journal") for provider in providers]
    assert all(run.frame["label"].tolist() == ["yes"] * len(FRAME) for run in runs)
    assert [set(run.rows["status"]) for run in runs] == [{"answered"}, *[{"reused"}] * (len(runs) - 1)]
    assert len({id(limits.gate_of(provider._budget())) for provider in providers}) == 1
    assert len(server.requests) - already == len(FRAME)


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_every_spelling_is_answered(play, speaker):
    """Each name of this machine leads to the server, over IPv4 and IPv6."""
    server = play[speaker]
    for host in hosts(server):
        run = label(make(server, base_url=f"http://{host}{SPEAKERS[speaker]}"), False)
        assert run.frame["label"].tolist() == ["yes"] * len(FRAME)
    assert server.violations == []


@pytest.mark.parametrize(
    "path",
    [
        "/openai/v1",
        "/openai/v1/",
        "",
        "/openai/deployments/m",
        "/openai/deployments/m/chat/completions?api-version=2024-10-21",
        "/?api-version=2024-10-21",
    ],
)
def test_azures_addresses(play, path):
    """Azure's new and old addresses lead to the deployment, however much of them is given."""
    server = play["azure"]
    run = label(make(server, model="m", base_url=server.url + path), False)
    assert run.frame["label"].tolist() == ["yes"] * len(FRAME)
    assert server.violations == []


def test_a_version_written_twice_is_explained(play):
    """An address that cannot be right is named, with what it was made into."""
    base_url = f"{play.openai.url}/v1/v1"
    with pytest.warns(bk.BatchkitWarning, match=r"names its version twice"):
        run = label(make(play.openai, base_url=base_url), False)
    assert set(run.frame["label_error"]) == {"config"}
