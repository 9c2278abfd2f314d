"""Invented runs, to draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from batchkit._logic.progress import Snapshot

PNG = b"\x89PNG\r\n\x1a\n"


def attempts(*lines: tuple[int, str, float, float, str | None]) -> pd.DataFrame:
    """A frame as `Run.requests` has it, from (row, provider, started, ended, error)."""
    frame = pd.DataFrame(lines, columns=["row", "provider", "started", "ended", "error"])
    names = list(dict.fromkeys(frame["provider"]))
    return frame.assign(provider=pd.Categorical(frame["provider"], names), finish=None, tokens_in=90, tokens_out=10)


def requests_of(count: int, *, providers: tuple[str, ...] = ("fast", "strong"), failed: int = 0) -> pd.DataFrame:
    """A run of ``count`` attempts, taking turns, the first ``failed`` of them without a reply."""
    started = np.arange(count) // 8 * 0.1
    ended = started + 0.05 + np.arange(count) % 8 * 0.005
    errors = ["server"] * failed + [None] * (count - failed)
    names = [providers[i % len(providers)] for i in range(count)]
    frame = attempts(*zip(range(count), names, started, ended, errors, strict=True))
    return frame.assign(provider=pd.Categorical(names, providers))


@dataclass
class Invented:
    """As much of a run as `compare` reads."""

    requests: pd.DataFrame
    elapsed: float
    snapshot: Snapshot


def run_of(count: int, seconds: float, *, failed: int = 0, reused: int = 0) -> Invented:
    """A run of ``count`` rows with one provider."""
    counts = Snapshot(count, count - failed, failed, {"server": failed}, (), "done", reused)
    return Invented(requests_of(count, providers=("fast",), failed=failed), seconds, counts)
