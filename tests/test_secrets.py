"""Guarantee 8 at every vendor: a key is in nothing that can be seen, saved or passed on."""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings

import pandas as pd
import pytest

import batchkit as bk
from batchkit._playground import Server
from batchkit._playground.wires import VENDORS, WIRES

SECRET = "sk-very-secret-0123456789abcdef"
FRAME = pd.DataFrame({"text": ["one", "two", "three"]})
SPEAKERS = [*WIRES, *VENDORS]
HEADERS = {
    "openai": {"Authorization": f"Bearer {SECRET}"},
    "responses": {"authorization": f"Bearer {SECRET}"},
    "anthropic": {"Authorization": f"Bearer {SECRET}"},
    "gemini": {"X-Goog-Api-Key": SECRET},
    "ollama": {"Authorization": f"Bearer {SECRET}"},
    "azure": {"api-key": SECRET},
}


def first(text, labels):
    """Answer with the first label."""
    return labels[0] if labels else "yes"


def servers(**settings):
    """Describe a server for each dialect and vendor."""
    return {
        speaker: Server(vendor=speaker, **settings) if speaker in VENDORS else Server(speaker, **settings)
        for speaker in SPEAKERS
    }


@pytest.fixture(scope="module")
def quoting():
    """Servers that repeat the key in their errors."""
    with bk.playground(answer=first, **servers(script=lambda text, nth: "key_quoted")) as play:
        yield play


@pytest.fixture(scope="module")
def keyed():
    """Servers that insist on the key."""
    with bk.playground(answer=first, **servers(api_key=SECRET)) as play:
        yield play


def make(server, **settings):
    """Make a provider of the server's vendor; what is nobody's profile is a compatible server."""
    return server.provider(**({"vendor": None} if server.name == "moonshot" else {}), **settings)


def everything_seen(provider, place):
    """Run it in every way that shows something, and return all of that as one text."""
    settings = {"route": provider, "progress": False, "journal": place}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = FRAME.llm.classify("text", ["yes", "no"], details="full", **settings)
        run = bk.last_run()
        with pytest.raises(bk.RowFailed) as raised:
            FRAME.llm.classify("text", ["yes", "no"], on_error="raise", **settings)
    shown = [str(warning.message) for warning in caught] + traceback.format_exception(raised.value)
    shown += [table.to_csv() for table in (out, run.rows, run.requests, run.failed, run.summary)]
    shown += [repr(run), run._repr_html_(), repr(provider), repr(provider.check())]
    shown += [str(pickle.dumps(value)) for value in (out, provider)]
    return "\n".join([*shown, *(file.read_bytes().decode("latin-1") for file in place.parent.iterdir())])


@pytest.mark.parametrize("speaker", SPEAKERS)
def test_a_key_that_the_vendor_repeats_is_shown_nowhere(quoting, speaker, tmp_path, caplog, capfd):
    """Messages, frames, reprs, tracebacks, pickles, logs and the journal hold no key, though the vendor wrote it."""
    with caplog.at_level(logging.DEBUG):
        text = everything_seen(make(quoting[speaker], api_key=SECRET), tmp_path / "journal")
    text += caplog.text + "".join(capfd.readouterr())
    assert SECRET not in text
    assert "[key]" in text or speaker == "mistral", "the vendor did not repeat it"


@pytest.mark.parametrize("speaker", HEADERS)
def test_a_key_in_a_header_is_a_key(quoting, keyed, speaker, tmp_path):
    """A user's own header for the key stands instead of ours, arrives as it is, and is shown nowhere either."""
    settings = {"headers": HEADERS[speaker], "api_key": "ours"}
    out = FRAME.llm.classify("text", ["yes", "no"], route=make(keyed[speaker], **settings), progress=False)
    assert out["label"].tolist() == ["yes"] * len(FRAME)
    assert keyed[speaker].violations == []
    assert SECRET not in everything_seen(make(quoting[speaker], **settings), tmp_path / "journal")
