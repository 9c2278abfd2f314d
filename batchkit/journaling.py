"""The journal as a person sees it: what it holds, and how to export, shrink or delete it."""

from __future__ import annotations

import html
import importlib.util
import re
import time
from datetime import timedelta
from pathlib import Path

import pandas as pd

from batchkit import settings
from batchkit._engine import journal as store
from batchkit.errors import ConfigError

__all__ = ["JournalView", "default_path", "journal"]

_COLUMNS = (
    "key", "task", "provider", "model", "answer", "confidence", "confidence_source", "finish",
    "tokens_in", "tokens_out", "cap", "at",
)  # fmt: skip
_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def default_path() -> Path | None:
    """Where answers are kept if no ``journal=`` says otherwise; None if they are not kept.

    ``bk.use(journal=...)`` decides, else the variable ``BATCHKIT_JOURNAL`` (a path or ``off``), else it is a file in
    the user's data folder.

    Examples
    --------
    >>> import batchkit as bk
    >>> with bk.use(journal=False):
    ...     default_path() is None
    True
    """
    return settings.journal_place(None)


def journal(path: str | Path | None = None) -> JournalView:
    """Look at a journal: the file in which finished answers are kept, so that none is paid for twice.

    Parameters
    ----------
    path : str or Path, optional
        The file; without it the one that runs use by default.

    Returns
    -------
    JournalView
        Looking makes no file: a journal that does not exist yet is an empty one.

    Raises
    ------
    ConfigError
        If no path is given and the journal is switched off.

    Notes
    -----
    A journal holds answers, and for each a hash of what was asked; never a prompt, a cell or an API key. The hash is
    salted by the file itself, so a file may be moved and goes on to work. Whoever holds the file can still test a
    guess ("was exactly this text asked of this model?") and read the answers: keep it like the data it came from.
    Only its owner can read a file that batchkit made.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.journal("answers.sqlite").entries.empty
    True
    """
    place = settings.journal_place(path)
    if place is None:
        raise ConfigError(
            "the journal is switched off (by bk.use, BATCHKIT_JOURNAL or the value given). "
            "Name a file to look at: bk.journal('path')."
        )
    return JournalView(place)


class JournalView:
    """What a journal holds, and what can be done with it. Made by ``bk.journal()``; always shows the present.

    Attributes
    ----------
    path : Path
        The file, whether or not it exists yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        counts = self.summary
        lines = [f"<Journal {str(self.path)!r}: {counts['entries'].sum():,} answers, {_bytes(self.size)}>"]
        lines += [f"  {row.provider}, {row.task}: {row.entries:,}" for row in counts.itertuples()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = f"Journal <code>{html.escape(str(self.path))}</code>, {_bytes(self.size)}"
        return f"<div>{head}</div>{self.summary.to_html(index=False)}"

    @property
    def size(self) -> int:
        """Bytes on disk; 0 where there is no file yet."""
        return store.size(self.path)

    @property
    def summary(self) -> pd.DataFrame:
        """One row per provider and task: ``entries`` (int), ``oldest`` and ``newest`` (UTC).

        Raises
        ------
        BatchkitError
            If the file cannot be read, or is no journal.

        Examples
        --------
        >>> import batchkit as bk
        >>> list(bk.journal("answers.sqlite").summary)
        ['provider', 'task', 'entries', 'oldest', 'newest']
        """
        names = ("provider", "task", "entries", "oldest", "newest")
        counts = [tuple(getattr(row, name) for name in names) for row in store.tally(self.path)]
        frame = pd.DataFrame(counts, columns=list(names)).astype({"entries": "int64"})
        return frame.assign(oldest=_moments(frame["oldest"]), newest=_moments(frame["newest"]))

    @property
    def entries(self) -> pd.DataFrame:
        """Every answer kept, in the order they were written.

        Columns: ``key`` (the hash of what was asked, in hexadecimal), ``task``, ``provider``, ``model``, ``answer``
        (JSON text), ``confidence`` (float), ``confidence_source``, ``finish``, ``tokens_in``, ``tokens_out``, ``cap``
        (the output cap in tokens), ``at`` (UTC). What was asked is not kept, so it is not here.

        Raises
        ------
        BatchkitError
            If the file cannot be read, or is no journal.

        Examples
        --------
        >>> import batchkit as bk
        >>> len(bk.journal("answers.sqlite").entries)
        0
        """
        rows = [
            (
                entry.key.hex(), entry.task, entry.provider, entry.model, entry.value.decode(), entry.confidence,
                entry.confidence_source, entry.finish, entry.tokens_in, entry.tokens_out, entry.cap, entry.at,
            )
            for entry in store.entries(self.path)
        ]  # fmt: skip
        frame = pd.DataFrame(rows, columns=list(_COLUMNS))
        numbers = {"confidence": "float64", "tokens_in": "int64", "tokens_out": "int64", "cap": "int64"}
        texts = dict.fromkeys(("key", "task", "provider", "model", "answer", "confidence_source", "finish"), "string")
        return frame.astype({**numbers, **texts}).assign(at=_moments(frame["at"]))

    def export(self, path: str | Path) -> Path:
        """Write `entries` to a file.

        Parameters
        ----------
        path : str or Path
            Ends in ``.csv`` or ``.parquet``. A file that is there is replaced.

        Returns
        -------
        Path
            The file written.

        Raises
        ------
        ConfigError
            For another ending, or for Parquet without pyarrow.

        Examples
        --------
        >>> import batchkit as bk
        >>> bk.journal("answers.sqlite").export("answers.csv")  # doctest: +SKIP
        PosixPath('answers.csv')
        """
        target = Path(path).expanduser()
        suffix = target.suffix.lower()
        if suffix == ".csv":
            self.entries.to_csv(target, index=False)
        elif suffix == ".parquet":
            if importlib.util.find_spec("pyarrow") is None:
                raise ConfigError(
                    f"export({str(path)!r}) needs pyarrow, which is not installed. "
                    "Install it (pip install pyarrow), or export to a .csv file."
                )
            self.entries.to_parquet(target, index=False)
        else:
            raise ConfigError(f"export({str(path)!r}): the name must end in .csv or .parquet.")
        return target

    def prune(
        self, *, older_than: str | float | timedelta | None = None, larger_than: int | None = None
    ) -> JournalView:
        """Drop old answers, for good: they will be asked again when needed.

        Parameters
        ----------
        older_than : str, float or timedelta, optional
            Drops what is older: days as a number, or text such as ``"12h"``, ``"30d"``, ``"8w"``.
        larger_than : int, optional
            Drops the oldest until at most so many bytes are in use.

        Returns
        -------
        JournalView
            This one, showing what is left.

        Raises
        ------
        ConfigError
            If neither is given, or one is no age or size.
        BatchkitError
            If the file cannot be written, or is no journal.

        Examples
        --------
        >>> import batchkit as bk
        >>> bk.journal("answers.sqlite").prune(older_than="30d", larger_than=100_000_000).size
        0
        """
        if older_than is None and larger_than is None:
            raise ConfigError("prune() needs to know what may go: older_than='30d', larger_than=bytes, or both.")
        if larger_than is not None and not _is_amount(larger_than):
            raise ConfigError(f"larger_than={larger_than!r} is no number of bytes.")
        before = None if older_than is None else time.time() - _days(older_than) * 86_400
        store.prune(self.path, before=before, at_most=larger_than)
        return self

    def delete(self) -> None:
        """Remove the file with every answer in it. Runs that are going on keep theirs in memory.

        Raises
        ------
        BatchkitError
            If the file is no journal, is in use by another program, or cannot be removed.

        Examples
        --------
        >>> import batchkit as bk
        >>> bk.journal("answers.sqlite").delete()
        """
        store.delete(self.path)


def _days(age: str | float | timedelta) -> float:
    if isinstance(age, timedelta):
        age = age / timedelta(days=1)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([hdw])\s*", age.lower()) if isinstance(age, str) else None
    if found:
        return float(found[1]) * _DAYS[found[2]]
    if isinstance(age, str) or not _is_amount(age):
        raise ConfigError(f"older_than={age!r} is no age. Give days as a number, or text such as '12h', '30d', '8w'.")
    return age


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _moments(seconds: pd.Series[float]) -> pd.Series[pd.Timestamp]:
    return pd.to_datetime(seconds.astype("float64"), unit="s", utc=True)


def _bytes(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
