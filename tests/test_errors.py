"""The words of errors, and what catches them."""

from __future__ import annotations

import pickle

import pytest

import batchkit as bk
from batchkit.errors import nearest


@pytest.mark.parametrize(
    ("word", "known", "says"),
    [
        ("textt", ["text", "lang"], "Did you mean 'text'?"),
        ("zzz", ["text", "lang"], "There is 'text', 'lang'."),
        ("zzz", [], "There is none at all."),
        (7, [1, 2], "There is '1', '2'."),
        ("zzz", list("abcdefghijklmnopqrstuvwxy"), "and 5 more."),
    ],
)
def test_nearest(word, known, says):
    """An unknown word gets the nearest known one, else a list of what there is."""
    assert nearest(word, known).endswith(says)


def test_an_unknown_keyword_names_the_nearest():
    """The error names where, what, and the nearest keyword, and is a `TypeError` and a `ConfigError`."""
    error = bk.UnknownKeyword.at("OpenAI", "max_concurency", {"rpm", "max_concurrency"})
    assert str(error) == "OpenAI has no keyword 'max_concurency'. Did you mean 'max_concurrency'?"
    assert isinstance(error, TypeError)
    assert isinstance(error, bk.ConfigError)


def test_a_column_error_reads_as_it_was_written():
    """A `KeyError` would show the repr of its message, this one shows the message."""
    message = "there is no column 'texd'.\nDid you mean 'text'?"
    assert str(bk.ColumnError(message)) == message


def test_an_interrupt_passes_by_exception_handlers():
    """`except Exception` does not eat an interrupt, so that "Run all" stops."""
    assert not issubclass(bk.Interrupted, Exception)


def test_a_failed_row_carries_its_run():
    """`RowFailed` holds the run as it stood."""
    run = object()
    error = bk.RowFailed("row 3 failed", run)
    assert (str(error), error.run) == ("row 3 failed", run)
    assert bk.RowFailed("row 3 failed").run is None


@pytest.mark.parametrize(
    "error",
    [bk.ConfigError("x"), bk.ColumnError("x"), bk.LabelError("x"), bk.RouteError("x"), bk.UnknownKeyword("x")],
)
def test_errors_travel_between_processes(error):
    """An error survives pickling with its class and message."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
