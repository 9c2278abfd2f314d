"""A limit of tokens per minute, short and long rows mixed: how much of it is used, and who overtakes a long row."""

from __future__ import annotations

import time

import pandas as pd
from results import promise

import batchkit as bk
from batchkit._playground import RunningServer

TPM, LATENCY, JITTER, IN_FLIGHT = 1_200_000, 0.2, 0.05, 64
ROWS, LONG_EVERY = 1_600, 8
SHORT, LONG = "The parcel is late. ", "The parcel is late, and nobody answers my letters. " * 200
ROOMS: dict[str, dict[str, int]] = {"64 tokens": {"max_output_tokens": 64}, "by default": {}}
TARGET = 0.95


def frame() -> pd.DataFrame:
    """Every eighth row is long, and each begins with its number."""
    return pd.DataFrame({"text": [f"{row}: {SHORT if row % LONG_EVERY else LONG}" for row in range(ROWS)]})


def overtakings(server: RunningServer) -> dict[int, int]:
    """By row, how many later rows reached the server before it."""
    # A row that was refused comes again; its first coming counts.
    order = list(dict.fromkeys(int(request.text.partition(":")[0]) for request in server.requests))
    return {row: sum(other > row for other in order[:place]) for place, row in enumerate(order)}


def measure(room: str, dialect: str) -> float:
    """The share of the limit that was used, and a line of the table."""
    server = {"dialect": dialect, "latency": LATENCY, "jitter": JITTER, "tpm": TPM}
    with bk.playground(answer=lambda text, labels: labels[0], only=server) as play:
        provider = play.only.provider(max_concurrency=IN_FLIGHT, tpm=TPM, **ROOMS[room])
        began = time.perf_counter()
        out = frame().llm.classify("text", ["x", "y"], route=provider, progress=False)
        seconds = time.perf_counter() - began
        answered = [request for request in play.only.requests if request.fate == "answered"]
        refused = play.only.counts["over_tpm"]
        overtaken = overtakings(play.only)
        most = play.only.peak_in_flight
    assert out["label"].notna().all()
    assert sorted(overtaken) == list(range(ROWS))
    tokens = sum(request.input_tokens + request.output_tokens for request in answered)
    used: float = tokens / (TPM / 60 * (seconds + 1))
    worst = max(overtaken[row] for row in range(0, ROWS, LONG_EVERY))
    cells = [room, dialect, f"{seconds:.2f}", f"{tokens:,}", f"{used:.1%}", str(refused), str(most), str(worst)]
    print("|", " | ".join(cells), "|", flush=True)
    return used


def main() -> None:
    bk.use(journal=False)
    print(f"\n## A limit of {TPM:,} tokens a minute: {ROWS:,} rows, every eighth long, {LATENCY} ± {JITTER} s\n")
    print(
        "Tokens are those that the server counted for its answers, input and output. Used is their share of what the\n"
        "limit allowed from the beginning of the call to its end: the second's worth that the server lets go at once,\n"
        f"and then so many a second (target: at least {TARGET:.0%}). Overtaken is how many later rows reached the\n"
        "server before a long one, the worst of all long rows (target: no more than were in flight). The server takes\n"
        "the room for an answer when a request arrives and gives back what the answer leaves of it.\n"
    )
    print("| room for an answer | dialect | seconds | tokens | used | refused | most in flight | overtaken |")
    print("|---|---|--:|--:|--:|--:|--:|--:|", flush=True)
    for room in ROOMS:
        used = min(measure(room, dialect) for dialect in ("openai", "anthropic"))
        promise(f"use of a known limit of tokens, room for an answer: {room}", used, TARGET, at_least=True)


if __name__ == "__main__":
    main()
