"""Label 120 customer messages by two providers on this machine, faults included, and show what happened.

No key, no cost, no internet: the providers are loopback servers of `bk.playground`.
"""

from __future__ import annotations

import base64
import time
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

import batchkit as bk
from batchkit._playground import Playground
from batchkit.plots import timeline

BUILD = Path(__file__).parent.parent / "build"
QUICK_SLOTS, CAREFUL_SLOTS = 8, 4
SEED = 50
LONG = 65
"""Characters: longer messages go to the careful provider."""


def servers() -> Playground:
    """A quick provider that fails now and then, and a careful one that is slower and takes fewer at once."""
    play: Playground = bk.playground(
        seed=SEED,
        quick={"latency": 0.08, "jitter": 0.02, "server_errors": 0.04, "drops": 0.02, "garbage": 0.02},
        careful={
            "dialect": "anthropic", "latency": 0.2, "jitter": 0.05, "max_concurrency": CAREFUL_SLOTS, "truncated": 0.1
        },
    )  # fmt: skip
    return play


def label(play: Playground, messages: pd.DataFrame) -> pd.DataFrame:
    """The job itself: long messages go to the careful provider, the rest to the quick one."""
    quick = play.quick.provider(max_concurrency=QUICK_SLOTS)
    careful = play.careful.provider(max_concurrency=CAREFUL_SLOTS)
    route = bk.when(f"text.str.len() > {LONG}", careful).otherwise(quick)
    labelled: pd.DataFrame = messages.llm.classify("text", play.labels, route=route)
    return labelled


def seconds_one_at_a_time(play: Playground, messages: pd.DataFrame) -> float:
    """Ask the same rows of the same servers again, one request at a time as a loop would."""
    is_long = messages["text"].str.len() > LONG
    before = time.perf_counter()
    for server, rows in ((play.careful, messages[is_long]), (play.quick, messages[~is_long])):
        rows.llm.classify("text", play.labels, route=server.provider(max_concurrency=1))
    return time.perf_counter() - before


def warm_up(play: Playground) -> None:
    """Load the model that answers, so that no time below includes it."""
    hello = pd.DataFrame({"text": ["hello"]})
    for server in (play.quick, play.careful):
        hello.llm.classify("text", play.labels, route=server.provider(), progress=False)


def page(labelled: pd.DataFrame, summary: pd.DataFrame, facts: list[str], picture: bytes) -> str:
    """One self-contained HTML page. Every text of the data is escaped."""
    columns = ["text", "lang", "truth", "label", "label_confidence", "label_provider", "label_error"]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = []
    is_off = labelled["label"] != labelled["truth"]
    for row, differs in zip(labelled[columns].itertuples(index=False), is_off, strict=True):
        cells = "".join(f"<td>{escape(shown(value))}</td>" for value in row)
        body.append(f"<tr{' class=off' if differs else ''}>{cells}</tr>")
    return PAGE.format(
        facts="".join(f"<li>{escape(fact)}</li>" for fact in facts),
        summary=summary.reset_index().to_html(index=False, border=0, float_format="{:.2f}".format),
        picture=base64.b64encode(picture).decode(),
        head=head,
        body="\n".join(body),
    )


def shown(value: Any) -> str:
    if pd.isna(value):
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>batchkit demo</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff }}
body {{ max-width: 68rem; margin: 2rem auto; padding: 0 1rem }}
h1 {{ font-size: 1.5rem; margin-bottom: .3rem }} h2 {{ font-size: 1.1rem; margin-top: 2rem }}
img {{ width: 100%; height: auto }} div.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #e6e6e6 }}
th {{ font-weight: 600; font-size: .85em; color: #555; white-space: nowrap }}
tr.off td:nth-child(3), tr.off td:nth-child(4) {{ color: #a33600; font-weight: 600 }}
p.note {{ color: #555; font-size: .9em }}
</style>
<h1>120 customer messages, two providers</h1>
<ul>{facts}</ul>
<h2>When each request was in flight</h2>
<img alt="Timeline of all requests, one panel per provider" src="data:image/png;base64,{picture}">
<h2>Per provider</h2>
<div class="wide">{summary}</div>
<p class="note">p50, p90 and p99 are seconds per request that brought a reply.</p>
<h2>Every answer on its own row</h2>
<p class="note">truth is the label its author meant; where the model disagrees, both are coloured.</p>
<div class="wide"><table><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>
</html>
"""


def describe(labelled: pd.DataFrame, run: bk.Run, ours: float, serial: float) -> list[str]:
    """What there is to say about the run, a sentence each."""
    attempts = run.requests
    failed = attempts["error"].notna().sum()
    right = labelled["label"] == labelled["truth"]
    by_language = ", ".join(f"{lang} {share:.0%}" for lang, share in right.groupby(labelled["lang"]).mean().items())
    answered = labelled["label"].notna().sum()
    in_flight = f"{QUICK_SLOTS} + {CAREFUL_SLOTS} requests in flight"
    return [
        f"{answered} of {len(labelled)} rows answered.",
        f"{failed} of {len(attempts)} requests failed and were sent again.",
        f"{right.sum()} of {len(labelled)} labels are the true ones ({by_language}).",
        "The answers are a small embedding model's, which knows little Chinese.",
        f"{ours:.1f} s with {in_flight}, {serial:.1f} s for the same rows one at a time, measured just now.",
        f"One at a time took {serial / ours:.1f} times as long.",
    ]


def main() -> None:
    BUILD.mkdir(exist_ok=True)
    # Without the journal: the same rows are asked twice here, to compare.
    with bk.use(journal=False), servers() as play:
        warm_up(play)
        messages = play.messages
        print(f"{len(messages)} messages, {QUICK_SLOTS} + {CAREFUL_SLOTS} requests in flight:", flush=True)
        before = time.perf_counter()
        labelled = label(play, messages)
        ours = time.perf_counter() - before
        run = bk.last_run()
        assert run is not None
        print("The same one at a time, first the long ones, then the rest:", flush=True)
        serial = seconds_one_at_a_time(play, messages)

    facts = describe(labelled, run, ours, serial)
    summary = run.summary[["rows", "answered", "failed", "attempts", "p50", "p90", "p99", "tokens_in", "tokens_out"]]
    picture = timeline(run.requests, title="When each request was in flight")
    picture.savefig(BUILD / "timeline.png")
    untitled = timeline(run.requests)._repr_png_()
    (BUILD / "demo.html").write_text(page(labelled, summary, facts, untitled), encoding="utf-8")

    with pd.option_context("display.width", 160, "display.max_columns", None, "display.max_colwidth", 48):
        columns = ["text", "truth", "label", "label_confidence", "label_provider", "label_error"]
        print(f"\nThe labelled head\n{labelled[columns].head(10).round(2)}")
        print(f"\nPer provider (p50, p90, p99: seconds)\n{summary.round(2)}\n")
    print("\n".join(facts))
    print(f"\nSee {BUILD / 'demo.html'} and {BUILD / 'timeline.png'}")


if __name__ == "__main__":
    main()
