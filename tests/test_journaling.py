"""What a person sees of the journal, and can do with it."""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from datetime import timedelta

import pandas as pd
import pytest

from batchkit import journaling, settings
from batchkit._engine.journal import Entry, Journal
from batchkit.errors import BatchkitError, ConfigError

DAY = 86_400
NOW = time.time()


def entry(number, *, provider="openai:gpt-6-luna", days=0.0):
    key = number.to_bytes(16, "big")
    return Entry(key, "classify", provider, None, b'"billing"', 0.5, "stated", "stop", 10, 2, 256, NOW - days * DAY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


@pytest.fixture
def filled(path):
    """A journal of three answers: one of 40 days, one of 3 and one of today."""
    journal = Journal.open(path)
    for number, days in enumerate((40, 3, 0)):
        journal.put(entry(number, days=days, provider=("<b>local</b>", "luna")[number % 2]), None, lambda _: None)
    assert journal.flush(30)
    journal.close()
    return path


# ---- where it is --------------------------------------------------------------------------------


def test_the_view_follows_the_settings(path, monkeypatch):
    """Without a path the journal is the one that runs would use."""
    monkeypatch.setenv("BATCHKIT_JOURNAL", str(path))
    assert journaling.journal().path == journaling.default_path() == path
    assert journaling.journal(path.with_name("other")).path == path.with_name("other")


@pytest.mark.parametrize("given", [None, "off", False])
def test_a_journal_that_is_off_is_explained(given, monkeypatch):
    """There is nothing to look at where none is kept, and a path would help."""
    monkeypatch.setenv("BATCHKIT_JOURNAL", "off")
    assert journaling.default_path() is None
    with pytest.raises(ConfigError, match=r"switched off.*bk\.journal\('path'\)"):
        journaling.journal(given)


def test_the_default_is_in_the_data_folder_of_the_user(monkeypatch):
    """If nobody says otherwise the file is a user's own."""
    monkeypatch.delenv("BATCHKIT_JOURNAL")
    assert journaling.default_path() == settings.journal_place()
    assert journaling.default_path().name == "journal.sqlite"


# ---- what it holds ------------------------------------------------------------------------------


def test_looking_makes_no_file(path):
    """A journal that is not there yet is an empty one, and stays not there."""
    view = journaling.journal(path)
    assert (view.size, len(view.entries), len(view.summary)) == (0, 0, 0)
    assert repr(view) == f"<Journal '{path}': 0 answers, 0 bytes>"
    assert view.prune(older_than=1) is view
    view.delete()
    assert list(path.parent.iterdir()) == []


def test_the_repr_counts_by_provider_and_task(filled):
    """One line for the file and one for each provider and task."""
    first, *rest = repr(journaling.journal(filled)).splitlines()
    assert first.startswith(f"<Journal '{filled}': 3 answers, ")
    assert rest == ["  <b>local</b>, classify: 2", "  luna, classify: 1"]


def test_the_html_view_is_escaped(filled):
    """Names are shown as text, whatever they contain."""
    page = journaling.journal(filled)._repr_html_()
    assert "&lt;b&gt;local&lt;/b&gt;" in page
    assert "<b>" not in page
    assert str(filled) in page


def test_the_summary_has_moments(filled):
    """The first and the last answer of each provider and task have a time in UTC."""
    summary = journaling.journal(filled).summary.set_index("provider")
    assert summary.loc["luna", "entries"] == 1
    assert summary.loc["<b>local</b>", "newest"] - summary.loc["<b>local</b>", "oldest"] == timedelta(days=40)
    assert str(summary["oldest"].dt.tz) == "UTC"


def test_entries_are_a_frame(filled):
    """Each answer is a row with the types its columns have in an empty frame too."""
    frame = journaling.journal(filled).entries
    empty = journaling.journal(filled.with_name("none")).entries
    assert frame.dtypes.drop("at").to_dict() == empty.dtypes.drop("at").to_dict()
    assert frame["key"].tolist() == [f"{number:032x}" for number in range(3)]
    assert frame["answer"].tolist() == ['"billing"'] * 3
    assert frame["model"].isna().all()
    assert frame["at"].is_monotonic_increasing
    assert frame[["confidence", "tokens_in", "tokens_out", "cap"]].iloc[0].tolist() == [0.5, 10, 2, 256]


# ---- what can be done with it -------------------------------------------------------------------


def test_export_to_csv(filled, tmp_path):
    """A CSV file holds every entry."""
    target = journaling.journal(filled).export(str(tmp_path / "answers.csv"))
    back = pd.read_csv(target)
    assert list(back) == list(journaling.journal(filled).entries)
    assert back["answer"].tolist() == ['"billing"'] * 3


def test_export_to_parquet(filled, tmp_path):
    """A Parquet file holds every entry."""
    pytest.importorskip("pyarrow")
    target = journaling.journal(filled).export(tmp_path / "answers.parquet")
    assert pd.read_parquet(target)["key"].tolist() == journaling.journal(filled).entries["key"].tolist()


def test_export_to_parquet_needs_pyarrow(filled, tmp_path, monkeypatch):
    """Without pyarrow the error names it and the other way."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow.*\.csv"):
        journaling.journal(filled).export(tmp_path / "answers.parquet")


@pytest.mark.parametrize("name", ["answers", "answers.xlsx", "csv"])
def test_export_to_something_else_is_refused(filled, tmp_path, name):
    """An ending that says no format is an error, and nothing is written."""
    with pytest.raises(ConfigError, match=r"must end in \.csv or \.parquet"):
        journaling.journal(filled).export(tmp_path / name)
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("age", "left"),
    [("30d", 2), (30, 2), (30.5, 2), (timedelta(days=30), 2), ("5w", 2), ("6W", 3), ("12h", 1), (" 2 d ", 1), (0, 0)],
)
def test_pruning_by_age(filled, age, left):
    """What is older than the age goes, however the age is written."""
    assert len(journaling.journal(filled).prune(older_than=age).entries) == left


def test_pruning_by_size(filled):
    """What does not fit goes, and all of it if nothing may stay."""
    view = journaling.journal(filled)
    assert len(view.prune(larger_than=10_000_000).entries) == 3
    assert len(view.prune(larger_than=0).entries) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs to know what may go"),
        ({"older_than": "soon"}, "older_than='soon' is no age"),
        ({"older_than": "-3d"}, "older_than='-3d' is no age"),
        ({"older_than": -3}, "older_than=-3 is no age"),
        ({"older_than": timedelta(days=-3)}, "older_than=-3.0 is no age"),
        ({"older_than": float("nan")}, "older_than=nan is no age"),
        ({"older_than": True}, "older_than=True is no age"),
        ({"larger_than": -1}, "larger_than=-1 is no number"),
        ({"larger_than": "1GB"}, "larger_than='1GB' is no number"),
    ],
)
def test_pruning_by_nonsense_is_refused(filled, wrong, said):
    """A value that means nothing drops nothing."""
    view = journaling.journal(filled)
    with pytest.raises(ConfigError, match=said):
        view.prune(**wrong)
    assert len(view.entries) == 3


@pytest.mark.parametrize("holds", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE", "SELECT * FROM answers"])
def test_a_journal_in_use_by_another_program_is_not_deleted(filled, holds, monkeypatch):
    """Whatever another connection does with it, the file stays for as long as it is there, and goes afterwards."""
    monkeypatch.setattr(journaling.store, "_PATIENCE", 0.1)
    with closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute(holds)
        with pytest.raises(BatchkitError, match="locked by another program"):
            journaling.journal(filled).delete()
    assert len(journaling.journal(filled).entries) == 3
    journaling.journal(filled).delete()
    assert not filled.exists()


def test_a_journal_in_use_by_this_process_may_be_deleted(filled):
    """A run that is going on keeps its answers in memory; it is told that the file vanished."""
    journal = Journal.open(filled)
    journaling.journal(filled).delete()
    journal.put(entry(9), None, lambda _: None)
    assert not journal.flush(30)
    assert "vanished" in journal.problem
    journal.close()


@pytest.mark.parametrize("trouble", ["SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR_WRITE"])
def test_a_journal_that_cannot_be_written_may_be_deleted(filled, trouble, monkeypatch):
    """Where the disk is full, to delete the journal is the way out that its error names."""

    def fails(path):
        error = sqlite3.OperationalError("no room")
        error.sqlite_errorname = trouble
        raise error

    monkeypatch.setattr(journaling.store, "_require_nobody", fails)
    journaling.journal(filled).delete()
    assert not filled.exists()


def test_deleting(filled):
    """The file is gone, and the view shows an empty journal."""
    view = journaling.journal(filled)
    view.delete()
    assert not filled.exists()
    assert view.entries.empty


@pytest.mark.parametrize("act", ["entries", "summary", "delete"])
def test_a_file_that_is_no_journal_is_refused(path, act):
    """Nothing is read from and nothing done to the file of another program."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customers (name TEXT)")
    view = journaling.journal(path)
    with pytest.raises(BatchkitError, match="no journal") as caught:
        view.delete() if act == "delete" else getattr(view, act)
    assert "The run goes on" not in str(caught.value)
    assert path.exists()


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 kB"), (2_500_000, "2.5 MB"), (1 << 30, "1.1 GB")],
)
def test_sizes_are_readable(size, shown):
    """Bytes are shown in the unit that fits."""
    assert journaling._bytes(size) == shown
