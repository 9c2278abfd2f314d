"""Paid once: whatever ended a run, and whatever changed since, only what is missing is asked."""

from __future__ import annotations

import _thread
import functools
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import blockbuster
import pandas as pd
import pytest

import batchkit as bk
from batchkit._engine import journal as store
from batchkit._engine import memory

ROOT = Path(__file__).parent.parent
LABELS = ["billing", "delivery", "defect"]


def by_length(text, labels):
    """Another label for texts of another length, the same for the same."""
    return labels[len(text) % len(labels)]


def frame(count, start=0):
    texts = [f"message {number}: {'where is my parcel? ' * (number % 5)}" for number in range(start, start + count)]
    return pd.DataFrame({"text": texts}, index=[f"row {number}" for number in range(start, start + count)])


def right(df):
    return [LABELS[len(text) % 3] for text in df["text"]]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where runs of this test keep their answers."""
    path = tmp_path / "folder" / "journal.sqlite"
    monkeypatch.setenv("BATCHKIT_JOURNAL", str(path))
    return path


@pytest.fixture
def play(place):
    """Two servers that never fail."""
    with bk.playground(answer=by_length, one={}, two={"dialect": "anthropic"}) as play:
        yield play


def classify(df, route, labels=LABELS, **settings):
    return df.llm.classify("text", labels, route=route, progress=False, **settings)


def asked(server, work):
    """How many requests a server gets while something is done."""
    before = len(server.requests)
    work()
    return len(server.requests) - before


# ---- what is the same question -------------------------------------------------------------------

SAME = {
    "nothing": {},
    "max_concurrency": {"provider": {"max_concurrency": 3}},
    "rpm": {"provider": {"rpm": 60_000}},
    "tpm": {"provider": {"tpm": 60_000_000}},
    "timeout": {"provider": {"timeout": 5.0}},
    "deadline": {"provider": {"deadline": 50.0}},
    "max_retries": {"provider": {"max_retries": 0}},
    "price": {"provider": {"price": (1, 2)}},
    "name": {"provider": {"name": "another name"}},
    "api_key": {"provider": {"api_key": "another-key"}},
    "a key in a header": {"provider": {"headers": {"Api-Key": "another"}}},
    "order of the rows": {"frame": lambda df: df.iloc[::-1]},
    "index": {"frame": lambda df: df.reset_index(drop=True)},
    "other columns": {"frame": lambda df: df.assign(n=range(len(df)))},
    "name of the column": {"frame": lambda df: df.rename(columns={"text": "body"}), "column": "body"},
    "blank rows": {"frame": lambda df: pd.concat([df, pd.DataFrame({"text": [None, " "]})])},
    "repeated rows": {"frame": lambda df: pd.concat([df, df])},
    "output_column": {"verb": {"output_column": "topic"}},
    "details": {"verb": {"details": "full"}},
    "on_error": {"verb": {"on_error": "raise"}},
    "max_seconds": {"verb": {"max_seconds": 60}},
    "dedupe": {"verb": {"dedupe": False}},
    "labels as a dict": {"labels": dict.fromkeys(LABELS)},
    "white space around a description": {"labels": {**dict.fromkeys(LABELS), "defect": " broken "}},
}

OTHER = {
    "base_url": {"server": "three"},
    "model": {"provider": {"model": "another"}},
    "endpoint": {"server": "four"},
    "instructions of the verb": {"verb": {"instructions": "Parcels first."}},
    "instructions of the provider": {"provider": {"instructions": "Parcels first."}},
    "order of the labels": {"labels": LABELS[::-1]},
    "another label": {"labels": [*LABELS, "praise"]},
    "type of a label": {"labels": [*LABELS[:2], 3]},
    "a description": {"labels": {**dict.fromkeys(LABELS), "billing": "invoices"}},
    "another description": {"labels": {**dict.fromkeys(LABELS), "defect": "faulty"}},
    "an example": {"verb": {"examples": [("It leaks", "defect")]}},
    "reasoning": {"provider": {"reasoning": "low"}},
    "temperature": {"provider": {"temperature": 0.5}},
    "extra_body": {"provider": {"extra_body": {"seed": 7}}},
    "a header that is no key": {"provider": {"headers": {"OpenAI-Organization": "acme"}}},
    "confidence": {"verb": {"confidence": None}},
    "multi_label": {"verb": {"multi_label": True}},
    "refresh": {"verb": {"refresh": True}},
    "the texts": {"frame": lambda df: df.assign(text=df["text"] + "!")},
    "several columns": {"frame": lambda df: df.assign(more="m"), "column": ["text", "more"]},
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """Servers, and a journal in which one run's answers are."""
    place = tmp_path_factory.mktemp("matrix") / "journal.sqlite"
    servers = {"one": {}, "three": {}, "four": {"dialect": "responses"}}
    with bk.playground(answer=by_length, **servers) as play:
        for labels in (LABELS, {**dict.fromkeys(LABELS), "defect": "broken"}):
            classify(frame(4), play.one.provider(), labels, journal=place)
        yield play, place


@pytest.mark.parametrize("change", [*SAME.values(), *OTHER.values()], ids=[*SAME, *OTHER])
def test_a_change_asks_again_if_it_may_change_the_answer(matrix, change, tmp_path):
    """Whatever an answer depends on is part of its key, and nothing else is."""
    play, place = matrix
    shutil.copytree(place.parent, tmp_path / "copy")
    server = play[change.get("server", "one")]
    df = change.get("frame", lambda df: df)(frame(4))
    settings = {"journal": tmp_path / "copy" / place.name, "progress": False, **change.get("verb", {})}
    provider = server.provider(**change.get("provider", {}))
    column, labels = change.get("column", "text"), change.get("labels", LABELS)
    requests = asked(server, lambda: df.llm.classify(column, labels, route=provider, **settings))
    assert requests == (4 if change in OTHER.values() else 0)


def test_equal_rows_asked_apart_lack_only_their_own_answers(play):
    """With dedupe=False the n-th of equal rows has an answer of its own, and the first has it already."""
    twice = pd.concat([frame(3), frame(3)])
    assert asked(play.one, lambda: classify(twice, play.one.provider())) == 3
    assert asked(play.one, lambda: classify(twice, play.one.provider(), dedupe=False)) == 3
    assert asked(play.one, lambda: classify(twice, play.one.provider(), dedupe=False)) == 0


@pytest.mark.parametrize(("cap", "requests"), [(64, 0), (4_000, 0), (20, 0), (5, 3)])
def test_an_answer_serves_under_any_cap_that_it_fits(play, cap, requests):
    """A larger output cap takes what is there, a smaller one what could have come under it."""
    classify(frame(3), play.one.provider(max_output_tokens=200))
    used = bk.last_run().requests["tokens_out"].max()
    assert 5 < used <= 20
    work = lambda: classify(frame(3), play.one.provider(max_output_tokens=cap, max_retries=0))  # noqa: E731
    assert min(asked(play.one, work), 3) == requests


def test_answers_of_another_kind_come_back_as_they_were(play):
    """Lists, numbers, flags and confidences are remembered, with their types and who gave them."""
    for settings in ({"multi_label": True}, {"labels": [0, 1, "1"]}, {"labels": [True, False]}):
        provider = play.two.provider()
        new = classify(frame(5), provider, **settings, details="full")
        old = classify(frame(5), provider, **settings, details="full")
        same = ["label", "label_confidence", "label_provider", "label_error", "label_confidence_source"]
        pd.testing.assert_frame_equal(new[same], old[same])
        assert [type(value) for value in new["label"]] == [type(value) for value in old["label"]]
        assert (new["label_reused"].tolist(), old["label_reused"].tolist()) == ([False] * 5, [True] * 5)
        assert old["label_cost"].tolist() == [0.0] * 5
        assert bk.last_run().rows["status"].tolist() == ["reused"] * 5


# ---- what ended the run before -------------------------------------------------------------------


class Alarm:
    """An ``answer`` for a playground that does something when it is asked the n-th time."""

    def __init__(self):
        self.left = None
        self.act = None

    def after(self, count, act):
        self.left, self.act = count, act

    def __call__(self, text, labels):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.act()
        return by_length(text, labels)


@pytest.fixture
def alarm():
    return Alarm()


@pytest.fixture
def rung(place, alarm):
    """A playground whose server rings the alarm; one text is refused when it is asked first."""
    refused = frame(100)["text"].iloc[40]

    def script(text, nth):
        return "refusal" if text == refused and nth == 1 else "ok"

    with bk.playground(answer=alarm, one={"script": script, "latency": 0.02}) as play:
        yield play


def interrupted(df, provider, alarm):
    alarm.after(30, _thread.interrupt_main)
    with pytest.raises(bk.Interrupted, match=r"\d+ of 100 rows are answered.*goes on from there"):
        classify(df, provider)


def cancelled(df, provider, alarm):
    alarm.after(30, lambda: bk.last_run().cancel())
    out = classify(df, provider)
    assert "cancelled" in set(out["label_error"])


def raised(df, provider, alarm):
    with pytest.raises(bk.RowFailed, match=r"row 40 .*refused"):
        classify(df, provider, on_error="raise")


def out_of_time(df, provider, alarm):
    out = classify(df, provider, max_seconds=0.2)
    assert "budget" in set(out["label_error"])


def in_the_background(df, provider, alarm):
    alarm.after(30, lambda: bk.last_run().cancel())
    df.llm.background.classify("text", LABELS, route=provider, progress=False).result()


@pytest.mark.parametrize("ending", [interrupted, cancelled, raised, out_of_time, in_the_background])
def test_the_cell_run_again_asks_only_for_what_is_missing(rung, alarm, ending):
    """After an interrupt, a cancel, an exception or a budget the same cell goes on where it was."""
    df, provider = frame(100), rung.one.provider(max_concurrency=4)
    ending(df, provider, alarm)
    before = bk.last_run().snapshot
    assert 0 < before.answered < 100
    missing = asked(rung.one, lambda: classify(df, provider))
    again = bk.last_run()
    assert (again.snapshot.reused, missing) == (before.answered, 100 - before.answered)
    out = again.frame
    answered = out["label"].notna()
    assert answered.sum() >= 99
    assert out["label"][answered].tolist() == right(df[answered])
    # A refusal is not kept: its row is asked again, and this time it is answered.
    assert classify(df, provider)["label"].tolist() == right(df)


def test_failures_are_not_kept(place):
    """Rows that failed are asked again by the next run, rows that are answered are not."""
    fates = {"message 0": "refusal", "message 1": "context_length", "message 2": "content_filter"}

    def script(text, nth):
        return "ok" if nth > 1 else fates.get(text.partition(":")[0], "ok")

    df = frame(12).iloc[::-1]
    with bk.playground(answer=by_length, one={"script": script}) as play:
        out = classify(df, play.one.provider(max_concurrency=1))
        failed = out["label_error"].notna().sum()
        assert failed == 3
        assert asked(play.one, lambda: classify(df, play.one.provider())) == failed
        assert bk.last_run().frame["label"].tolist() == right(df)


def test_cut_and_invalid_replies_are_not_kept(place):
    """A reply that was cut twice, or named no label twice, leaves nothing behind."""
    for fault in ("truncated", "invalid"):
        with bk.playground(answer=by_length, one={fault: 1.0}) as play:
            out = classify(frame(3), play.one.provider(max_output_tokens=1 if fault == "truncated" else None))
            assert set(out["label_error"]) == {"truncated" if fault == "truncated" else "invalid_answer"}
    assert bk.journal().entries.empty


def test_refresh_replaces(play, place):
    """refresh=True asks all again, and what it gets is what later runs find."""
    answers = iter(["billing"] * 3 + ["defect"] * 3)
    with bk.playground(answer=lambda text, labels: next(answers), one={}) as moody:
        df, provider = frame(3), moody.one.provider()
        assert classify(df, provider)["label"].tolist() == ["billing"] * 3
        assert classify(df, provider)["label"].tolist() == ["billing"] * 3
        assert classify(df, provider, refresh=True)["label"].tolist() == ["defect"] * 3
        assert classify(df, provider)["label"].tolist() == ["defect"] * 3
    assert len(bk.journal().entries) == 3


# ---- several providers ---------------------------------------------------------------------------

ROUTES = {
    "balance": lambda one, two: bk.balance(one, two),
    "shares": lambda one, two: bk.split({one: 0.5, two: 0.5}),
    "one for long texts": lambda one, two: bk.when("text.str.len() > 40", one).otherwise(bk.balance(one, two)),
}


@pytest.mark.parametrize("name", ROUTES)
def test_routes_resume(place, alarm, name):
    """Where several may answer a row, none of them is asked again, also if rows are shuffled and added meanwhile."""
    df, more = frame(60), frame(70).sample(frac=1.0, random_state=1)
    with bk.playground(answer=alarm, one={"latency": 0.02}, two={"dialect": "anthropic", "latency": 0.02}) as play:

        def route():
            return ROUTES[name](play.one.provider(max_concurrency=3), play.two.provider(max_concurrency=3))

        def total():
            return len(play.one.requests) + len(play.two.requests)

        alarm.after(30, lambda: bk.last_run().cancel())
        classify(df, route())
        assert 0 < bk.last_run().snapshot.answered < 60
        assert classify(df, route())["label"].tolist() == right(df)
        assert total() == 60
        out = classify(more, route())
        assert (out["label"].tolist(), total()) == (right(more), 70)
        assert bk.last_run().snapshot.reused == 60
        assert set(out["label_provider"]) == {"one", "two"}


def test_one_provider_alone_uses_what_it_answered_in_a_balance(play):
    """A balance instead of one provider asks nobody, and so does the one alone for its own rows."""
    classify(frame(10), play.one.provider())
    assert asked(play.two, lambda: classify(frame(10), bk.balance(play.two.provider(), play.one.provider()))) == 0
    assert set(bk.last_run().frame["label_provider"]) == {"one"}


def test_the_same_text_under_different_routes(play):
    """Equal texts that go to different providers have an answer of each, and both are found again."""
    df = pd.DataFrame({"text": ["same"] * 4, "who": [1, 2, 1, 2]})
    route = bk.by("who", {1: play.one.provider(), 2: play.two.provider()})
    for requests in (1, 0):
        assert asked(play.one, lambda: asked(play.two, lambda: classify(df, route))) == requests
        assert bk.last_run().frame["label_provider"].tolist() == ["one", "two", "one", "two"]
    assert len(play.two.requests) == 1


def test_functions_are_kept_under_their_version(place):
    """A function's answers are kept if it has a version, until that changes."""
    seen = []

    def rules(prompt):
        seen.append(str(prompt))
        return "billing"

    for version, requests in ((None, 2), (None, 2), ("1", 2), ("1", 0), ("2", 2)):
        seen.clear()
        classify(frame(2), bk.FunctionProvider(rules, version=version))
        assert len(seen) == requests


class Speaker:
    """Says what it was made with, and counts."""

    def __init__(self, says):
        self.says, self.calls = says, 0

    def __call__(self, prompt):
        self.calls += 1
        return self.says

    say = __call__


class OtherSpeaker(Speaker):
    """Another class of the same."""


def says(label, prompt):
    return label


def says_by_name(prompt, label):
    return label


def says_first(labels, prompt):
    return labels[0]


def made_of(labels):
    def answer(prompt):
        return labels[0]

    return answer


def made(label):
    calls = 0

    def answer(prompt):
        nonlocal calls
        calls += 1
        return label

    return answer


KINDS = {
    "lambdas with tuples": lambda label: {
        "billing": lambda prompt: LABELS[0] if LABELS[0] in ("billing", "z") else LABELS[2],
        "defect": lambda prompt: LABELS[0] if LABELS[0] in ("y", "z") else LABELS[2],
    }[label],
    "lambdas with sets": lambda label: {
        "billing": lambda prompt: LABELS[0] if LABELS[0] in {"billing", "z"} else LABELS[2],
        "defect": lambda prompt: LABELS[0] if LABELS[0] in {"y", "z"} else LABELS[2],
    }[label],
    "partials of lists": lambda label: functools.partial(says_first, [label, "z"]),
    "closures over tuples": lambda label: made_of((label, "z")),
    "partials": lambda label: functools.partial(says, label),
    "partials by name": lambda label: functools.partial(says_by_name, label=label),
    "objects": Speaker,
    "classes": lambda label: {"billing": Speaker, "defect": OtherSpeaker}[label](label),
    "methods": lambda label: Speaker(label).say,
    "closures": made,
    "lambdas": lambda label: {"billing": lambda prompt: "billing", "defect": lambda prompt: "defect"}[label],
    "lambdas in lambdas": lambda label: {
        "billing": lambda prompt: (lambda: "billing")(),
        "defect": lambda prompt: (lambda: "defect")(),
    }[label],
    "defaults": lambda label: lambda prompt, label=label: label,
}


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_one_name_do_not_answer_for_each_other(kind, place):
    """Under one version, each function finds its own answers again and nobody else's, whoever is asked about a row."""
    df = frame(4).assign(who=["one", "two"] * 2)
    for swapped in (False, True):
        keys = ["two", "one"] if swapped else ["one", "two"]
        for again in range(2):
            billing, defect = (
                bk.FunctionProvider(KINDS[kind](label), version="1", name=label) for label in LABELS[::2]
            )
            out = classify(df, bk.by("who", dict(zip(keys, [billing, defect], strict=True))))
            wanted = ["defect", "billing"] * 2 if swapped else ["billing", "defect"] * 2
            assert out["label"].tolist() == wanted
            assert out["label_provider"].astype(object).tolist() == wanted
            if again:
                assert bk.last_run().rows["status"].eq("reused").all()


def test_an_object_that_keeps_texts_of_its_calls_is_the_same_function(place):
    """What a callable object writes down while it answers does not make its answers another's."""

    class Noting:
        def __call__(self, prompt):
            self.last = str(prompt)
            return "billing"

    provider = bk.FunctionProvider(Noting(), version="1")
    for status in ("answered", "reused"):
        classify(frame(3), provider)
        assert bk.last_run().rows["status"].eq(status).all()


def test_the_journals_place_is_told_once_by_the_first_run_that_keeps_answers(place):
    """Not by a plan, nor by a run whose answers are not kept; and it is told although a plan made the file."""
    kept, free = (bk.FunctionProvider(lambda _: "billing", version=version) for version in ("1", None))
    frame(2).llm.plan.classify("text", LABELS, route=kept)
    told = []
    for provider in (free, kept, kept, free):
        classify(frame(2), provider)
        told.append(bk.last_run().new_journal)
    assert told == [None, place, None, None]


def test_a_gold_column_is_never_touched(play):
    """A user's own label column stays as it is while rows are shuffled and added, and no row is paid twice."""
    gold = frame(20).assign(label=["gold", None] * 10)
    provider = play.one.provider()
    with pytest.raises(bk.ColumnError, match=r"'label'.*output_column.*overwrite=True"):
        classify(gold, provider)
    assert play.one.requests == []
    out = gold
    for step in (None, None, lambda df: df.sample(frac=1.0, random_state=2), None):
        if step is not None:
            out = pd.concat([step(out), frame(5, start=20).assign(label="gold")])
        out = classify(out, provider, output_column="topic")
        assert out["topic"].tolist() == right(out)
        assert out["label"].loc[gold.index].equals(gold["label"])
    assert len(play.one.requests) == 25
    assert len({request.text for request in play.one.requests}) == 25


# ---- processes that die, and processes at once ---------------------------------------------------

CLIENT = """
import sys
import pandas as pd
import batchkit as bk

source, base_url, journal, result = sys.argv[1:]
df = pd.read_pickle(source)
provider = bk.OpenAI("playground", base_url=base_url, api_key="none", name="one", max_concurrency=16)
out = df.llm.classify("text", ["billing", "delivery", "defect"], route=provider, progress=False, journal=journal)
out.to_pickle(result)
"""


def client(tmp_path, base_url, place, result):
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", CLIENT, tmp_path / "source", base_url, place, result],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 on this system")
@pytest.mark.parametrize(("rows", "kills"), [(400, 4), pytest.param(2_000, 20, marks=pytest.mark.slow)])
def test_a_kill_costs_what_was_under_way(tmp_path, place, alarm, request, rows, kills):
    """Killed again and again at random moments, a run ends complete, and what the journal held is never asked again."""
    df, rng, moments, kept, sent = frame(rows), random.Random(rows), [], [0], [0]
    df.to_pickle(tmp_path / "source")
    with bk.playground(answer=alarm, one={"latency": 0.02}) as play:
        for _ in range(kills):
            process = client(tmp_path, play.one.base_url, place, tmp_path / "result")

            def kill(process=process):
                os.kill(process.pid, signal.SIGKILL)
                moments.append(time.monotonic())

            alarm.after(rng.randint(1, 2 * rows // (kills + 1)), kill)
            process.communicate()
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL
            kept.append(entries(place))
            sent.append(len(play.one.requests))
        alarm.left = None
        process = client(tmp_path, play.one.base_url, place, tmp_path / "result")
        assert process.communicate()[1] == ""
    out = pd.read_pickle(tmp_path / "result")
    assert out.index.identical(df.index)
    assert out["label"].tolist() == right(df)
    assert len(moments) > kills // 2
    assert kept == sorted(kept)
    assert kept[-1] > 0
    # The server may answer what was in flight, 16 requests, a little after their sender is gone.
    for before, after, known in zip(sent, sent[1:], kept, strict=False):
        assert after - before <= rows - known + 16
    assert 0 <= len(play.one.requests) - sent[-1] - (rows - kept[-1]) <= 16
    if request.node.get_closest_marker("slow"):  # on a busy machine the writer may get no turn for so long
        answered = [request.answered for request in play.one.requests]
        lost = sum(16 + sum(moment - 0.1 < at <= moment for at in answered) for moment in moments)
        assert len(answered) <= rows + lost
    assert is_sound(place)


def test_two_processes_share_a_journal(tmp_path, place):
    """Two processes with the same rows at once both complete, and the journal stays sound."""
    df = frame(1_000)
    df.to_pickle(tmp_path / "source")
    with bk.playground(answer=by_length, one={}) as play:
        both = [client(tmp_path, play.one.base_url, place, tmp_path / f"result {number}") for number in (1, 2)]
        assert [process.communicate()[1] for process in both] == ["", ""]
        both.append(client(tmp_path, play.one.base_url, place, tmp_path / "result 3"))
        assert asked(play.one, both[-1].communicate) == 0
    for number in (1, 2, 3):
        assert pd.read_pickle(tmp_path / f"result {number}")["label"].tolist() == right(df)
    assert is_sound(place)


def entries(place):
    """How many answers a journal holds."""
    if not place.exists():
        return 0
    with closing(sqlite3.connect(place)) as connection:
        return connection.execute("SELECT count(*) FROM answers").fetchone()[0]


def is_sound(place):
    with closing(sqlite3.connect(place)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# ---- a journal that fails ------------------------------------------------------------------------


def newer(place, patch):
    classify(frame(1), bk.FunctionProvider(lambda _: "billing", version="1", name="f"))
    with closing(sqlite3.connect(place)) as connection:
        connection.execute("PRAGMA user_version=99")
    return "newer batchkit.*Update batchkit"


def corrupt(place, patch):
    place.parent.mkdir(parents=True)
    place.write_bytes(os.urandom(20_000))
    return "was damaged.*moved aside.*asked again"


def locked(place, patch):
    classify(frame(1), bk.FunctionProvider(lambda _: "billing", version="1", name="f"))
    patch.setattr(store, "_PATIENCE", 0.0)
    connection = sqlite3.connect(place, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    patch.callback(connection.close)
    return "locked by another program.*Close what holds it"


def full(place, patch):
    patch.setattr(store, "_PRAGMAS", (*store._PRAGMAS, "max_page_count=8"))
    return r"disk is full.*prune\(\)"


class Patch(pytest.MonkeyPatch):
    """Undoes what was set, and calls what was asked to be called."""

    def __init__(self):
        super().__init__()
        self._calls = []

    def callback(self, call):
        self._calls.append(call)

    def undo(self):
        super().undo()
        while self._calls:
            self._calls.pop()()


@pytest.fixture
def patch():
    patch = Patch()
    yield patch
    patch.undo()


@pytest.mark.parametrize("trouble", [newer, corrupt, locked, full])
def test_a_journal_in_trouble_harms_no_run(place, patch, trouble):
    """Every row is answered all the same, and one warning says what is wrong and what to do."""
    expected = trouble(place, patch)
    df = frame(400)
    with bk.playground(answer=by_length, one={}) as play, pytest.warns(bk.BatchkitWarning, match=expected) as told:
        out = classify(df, play.one.provider(max_concurrency=16))
    assert out["label"].tolist() == right(df)
    assert bk.last_run().rows["status"].eq("answered").all()
    assert len(told) == 1
    assert str(place) in str(told[0].message)
    assert told[0].filename == __file__


def test_a_journal_that_heals_is_used_again(place, patch):
    """The run after a trouble is over keeps its answers as ever."""
    locked(place, patch)
    with bk.playground(answer=by_length, one={}) as play:
        with pytest.warns(bk.BatchkitWarning, match="locked"):
            classify(frame(20), play.one.provider())
        patch.undo()
        assert asked(play.one, lambda: classify(frame(20), play.one.provider())) == 20
        assert asked(play.one, lambda: classify(frame(20), play.one.provider())) == 0


@pytest.mark.skipif(os.name != "posix", reason="other systems keep files that are open")
def test_a_folder_that_vanishes_harms_no_run(place, alarm):
    """If the journal's folder is removed in the middle of a run, the run goes on and says so once."""
    df = frame(400)
    alarm.after(50, lambda: shutil.rmtree(place.parent, ignore_errors=True))
    with (
        bk.playground(answer=alarm, one={"latency": 0.001}) as play,
        pytest.warns(bk.BatchkitWarning, match="vanished.*only in the frame") as told,
    ):
        out = classify(df, play.one.provider(max_concurrency=4))
    assert out["label"].tolist() == right(df)
    assert len(told) == 1


@pytest.mark.skipif(os.name != "posix", reason="permissions are of another kind elsewhere")
def test_a_folder_that_cannot_be_written_harms_no_run():
    """Without the right to write there the run goes on, and one warning names the way out."""
    folder, df = Path(tempfile.mkdtemp()), frame(20)
    is_root, nobody = os.geteuid() == 0, 65534
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with bk.playground(answer=by_length, one={}) as play:
            # Root may write anywhere.
            if is_root:
                os.chown(folder, nobody, nobody)
                os.seteuid(nobody)
            with pytest.warns(bk.BatchkitWarning, match="cannot be written.*BATCHKIT_JOURNAL") as told:
                out = classify(df, play.one.provider(), journal=folder / "journal.sqlite")
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert out["label"].tolist() == right(df)
    assert len(told) == 1


def test_an_interrupt_says_what_is_true_where_nothing_was_kept(place, alarm, patch):
    """If the journal could not be written, an interrupt does not promise that it was."""
    locked(place, patch)
    alarm.after(10, _thread.interrupt_main)
    with (
        bk.playground(answer=alarm, one={"latency": 0.02}) as play,
        pytest.warns(bk.BatchkitWarning, match="locked"),
        pytest.raises(bk.Interrupted) as stopped,
    ):
        classify(frame(100), play.one.provider(max_concurrency=2))
    assert "nothing more is being sent" in str(stopped.value)
    assert "goes on from there" not in str(stopped.value)


# ---- what a journal costs and holds --------------------------------------------------------------


def test_the_loop_never_waits_for_the_disk(place):
    """Looking up, writing and reusing answers block the engine's loop nowhere."""
    with bk.playground(answer=by_length, one={}) as play, blockbuster.blockbuster_ctx(["batchkit._engine"]):
        for reused in (0, 300):
            out = classify(frame(300), play.one.provider(max_concurrency=16))
            assert out["label"].tolist() == right(out)
            assert bk.last_run().snapshot.reused == reused


def test_a_loop_that_waited_for_the_disk_would_be_noticed(place, monkeypatch):
    """The check above fails as soon as the journal is read on the loop."""

    async def on_the_loop(function, *args):
        return function(*args)

    monkeypatch.setattr(memory, "in_thread", on_the_loop)
    with (
        bk.playground(answer=by_length, one={}) as play,
        blockbuster.blockbuster_ctx(["batchkit._engine"]),
        pytest.raises(blockbuster.BlockingError, match="sqlite3"),
    ):
        classify(frame(3), play.one.provider())


@pytest.mark.parametrize("labels", [["a\ud800", "b"], {"a": "like \udfff", "b": None}])
def test_text_that_no_json_can_hold_is_kept_as_well(place, labels):
    """A lone surrogate in a label, a description or the instructions costs nobody the journal."""
    seen = []

    def first(prompt):
        seen.append(str(prompt))
        return prompt.labels[0]

    for _ in range(2):
        out = classify(frame(2), bk.FunctionProvider(first, version="1"), labels, instructions="\ud801")
        assert out["label"].tolist() == [next(iter(labels))] * 2
    assert len(seen) == 2


def test_the_journal_holds_no_prompt_and_no_key(place):
    """No text of a row, no instruction and no key is in any byte of the journal's files."""
    secrets = ["sk-secret-0123456789", "a very private message", "Parcels first", "It leaks everywhere", "broken thing"]
    df = pd.DataFrame({"text": [f"{secrets[1]} {number}" for number in range(50)]})
    with bk.playground(answer=by_length, one={}) as play:
        out = classify(
            df,
            play.one.provider(api_key=secrets[0]),
            {**dict.fromkeys(LABELS), "defect": secrets[4]},
            instructions=secrets[2],
            examples=[(secrets[3], "defect")],
        )
    assert out["label"].notna().all()
    files = list(place.parent.iterdir())
    held = b"".join(file.read_bytes() for file in files)
    assert len(bk.journal().entries) == 50
    assert held.count(b"playground") >= 1
    for secret in secrets:
        assert secret.encode() not in held
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
