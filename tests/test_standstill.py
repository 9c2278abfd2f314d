"""A process that is stopped and goes on, and a clock that is set: no burst, nothing lost, nothing paid twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import callers

ROOT = Path(__file__).parents[1]
LABELS = ["0", "1", "2"]

CLIENT = """
import sys
import pandas as pd
import batchkit as bk

source, result, one, two, seconds = sys.argv[1:]
common = {"api_key": "none", "max_concurrency": 200, "rpm": 2_400}
short = bk.OpenAI("playground", base_url=one, name="short", timeout=float(seconds), **common)
mortal = bk.OpenAI("playground", base_url=two, name="mortal", deadline=float(seconds), **common)
df = pd.read_pickle(source)
route = bk.by("who", {"short": short, "mortal": mortal})
out = df.llm.classify("text", ["0", "1", "2"], route=route, progress=False)
out.to_pickle(result)
"""
_RATE, _BUCKET = 40, 36
"""What the client may send to each server: a second, and at once."""


def frame(rows):
    return pd.DataFrame({"text": [f"row {number} #{number % 3}" for number in range(rows)]})


def right(df):
    return [text.split("#")[1] for text in df["text"]]


def answer(text, labels):
    return text.split("#")[1]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped on this system")
@pytest.mark.parametrize(("stop", "seconds"), [(4.0, 3.0), pytest.param(90.0, 60.0, marks=pytest.mark.slow)])
def test_a_stopped_process_goes_on(tmp_path, stop, seconds):
    """Stopped for longer than a time-out and a deadline, a run keeps what had been answered, and sends no burst."""
    df = frame(280).assign(who=["short", "mortal"] * 140)
    df.to_pickle(tmp_path / "source")
    with bk.playground(answer=answer, short={"latency": 0.3}, mortal={"latency": 0.3}) as play:
        servers = (play.short, play.mortal)
        command = [sys.executable, "-W", "error", "-c", CLIENT, tmp_path / "source", tmp_path / "result"]
        process = subprocess.Popen(
            [*command, *(server.base_url for server in servers), str(seconds)], cwd=ROOT, stderr=subprocess.PIPE
        )
        try:
            while not all(len(server.requests) > 40 and server.in_flight for server in servers):
                assert process.poll() is None
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            time.sleep(stop)
            continued = time.monotonic()
        finally:
            process.send_signal(signal.SIGCONT)
        assert process.communicate() == (None, b"")
    out = pd.read_pickle(tmp_path / "result")
    assert out["label_error"].value_counts().loc[lambda counts: counts > 0].to_dict() == {}
    assert out["label"].tolist() == right(df)
    for server in servers:
        requests = server.requests
        assert any(request.arrived < stopped < request.answered for request in requests)
        assert Counter(request.text for request in requests).most_common(1)[0][1] == 1
        after = [request.arrived - continued for request in requests if request.arrived > continued]
        assert len(after) > _BUCKET + 10
        for window in (0.1, 0.3, 0.5):
            # A few more may have been let in and not been sent yet when the process was stopped.
            assert sum(at < window for at in after) <= _BUCKET + _RATE * window + 5


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_wrong_clock_waits_no_longer(monkeypatch, hours):
    """A provider that names the time at which to come back is asked again then, whatever the clock here says."""
    clock = SimpleNamespace(time=lambda: time.time() + hours * 3600)
    monkeypatch.setattr(callers, "time", clock)
    df = frame(6)
    with bk.playground(answer=answer, one={"script": ["rate_limit_date"]}) as play:
        out = df.llm.classify("text", LABELS, route=play.one.provider(), progress=False)
        assert play.one.counts == {"answered": 6, "rate_limit_date": 1}
    assert out["label"].tolist() == right(df)
