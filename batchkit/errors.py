"""The exceptions of batchkit: everything a user may meet, and what to do about it.

::

    BatchkitError                what this package raises for its own reasons
    ├── ConfigError              a provider, key or setting is wrong; nothing was sent   (ValueError)
    │   ├── CallError            an argument is missing, or one too many; says the call  (TypeError)
    │   │   └── UnknownKeyword   a keyword nobody knows; names the nearest one
    │   └── RouteError           a route that cannot be evaluated; names the rule
    ├── InputError               the frame or the question is wrong; nothing was sent    (ValueError)
    │   ├── ColumnError          a column that is not there, twice there, or in the way  (KeyError)
    │   └── LabelError           labels that cannot be told apart or are no labels       (TypeError)
    └── RowFailed                ``on_error="raise"`` met a row that failed; has ``.run``

    Interrupted                  the stop button or Ctrl-C; finished rows are kept       (KeyboardInterrupt)
    BatchkitWarning              something went wrong that does not end a run            (UserWarning)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "BatchkitError",
    "BatchkitWarning",
    "CallError",
    "ColumnError",
    "ConfigError",
    "InputError",
    "Interrupted",
    "LabelError",
    "RouteError",
    "RowFailed",
    "UnknownKeyword",
]


class BatchkitError(Exception):
    """Base of all errors this package raises for its own reasons."""


class ConfigError(BatchkitError, ValueError):
    """A provider, key or setting is wrong. Nothing was sent."""


class CallError(ConfigError, TypeError):
    """A call with an argument missing or one too many; the message says how it is made. Nothing was sent."""


class UnknownKeyword(CallError):
    """A keyword argument that does not exist; the message names the nearest one that does.

    A setting that was silently ignored is how a limit of 8 becomes a limit of thousands.
    """

    @classmethod
    def at(cls, where: str, unknown: str, known: Iterable[str]) -> UnknownKeyword:
        """Build the error for ``unknown`` passed to ``where``, which takes ``known``."""
        known = sorted(known)
        return cls(f"{where} has no keyword {unknown!r}. {nearest(unknown, known)}")


class RouteError(ConfigError):
    """A route that cannot be evaluated. The message names the rule. Nothing was sent."""


class InputError(BatchkitError, ValueError):
    """The frame or the question is wrong. Nothing was sent."""


class ColumnError(InputError, KeyError):
    """A column that is missing, ambiguous, or would be overwritten. Nothing was sent."""

    # KeyError shows the repr of its argument, which hides line breaks and doubles quotes.
    __str__ = BatchkitError.__str__


class LabelError(InputError, TypeError):
    """Labels that are no labels, or that cannot be told apart. Nothing was sent."""


class RowFailed(BatchkitError):
    """A row ended in an error while ``on_error="raise"``.

    Attributes
    ----------
    run : Run
        The run as it stood then: ``error.run.frame`` holds every finished row.
    """

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run


class Interrupted(KeyboardInterrupt):
    """The stop button or Ctrl-C ended the waiting; ``bk.last_run().frame`` holds what is done.

    A ``KeyboardInterrupt``, so that "Run all" stops and ``except Exception`` does not eat it.

    Attributes
    ----------
    tuning : Tuning or None
        Where `tune` was interrupted, what it had measured by then.
    """

    tuning: Any = None

    def _render_traceback_(self) -> list[str]:
        # IPython shows this in a traceback's place: who pressed stop knows where the cell was.
        return [f"Interrupted: {self}"]


class BatchkitWarning(UserWarning):
    """Something went wrong that does not end a run."""


def nearest(word: object, known: Iterable[object]) -> str:
    """Say which of ``known`` is closest to ``word``, or list what there is."""
    names = [str(name) for name in known]
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    shown = ", ".join(repr(name) for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return f"There is {shown}{more}." if shown else "There is none at all."
