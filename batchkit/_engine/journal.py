"""Answers already paid for: an SQLite file, one writer thread for each, and the only module that knows SQLite.

No prompt is kept, only a hash salted by the file itself. What was reported as written survives ``kill -9``; a power
cut may cost the last answers (``synchronous=NORMAL``), never the file.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from batchkit.errors import BatchkitError

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Done", "Entry", "Journal", "Kept", "Tally", "delete", "entries", "prune", "size", "tally"]

T = TypeVar("T")

Done: TypeAlias = Callable[[list[Any]], None]
"""Gets the tokens of one batch, in the writer's thread: they are in the file, or never will be (see ``problem``)."""

_Pending: TypeAlias = "tuple[Entry | None, Any, Done]"
_Identity: TypeAlias = tuple[int, int]

_GATHER = 0.04
"""Seconds in which a batch gathers: what a kill may cost, and a commit is shared by."""
_BATCH = 500
_PATIENCE = 10.0
"""Seconds another program may hold the file before it is given up."""
_GRACE = 2.0
"""Seconds that closing, and the end of the process, wait for what is not written yet."""
_CAP = 1 << 30
"""Bytes a journal may hold; beyond it the oldest answers go."""
_CAP_CHECK = 5_000
"""Entries between two looks at the size."""
_TRIM = 2_000
_LOOK_UP = 10_000
"""Keys in one statement, where SQLite takes as many parameters."""

_OURS = 0x62617463
"""SQLite's application id of our files, ASCII ``batc``."""
_PRAGMAS = ("synchronous=NORMAL", "wal_autocheckpoint=4000", "journal_size_limit=16777216")
"""Four times the usual pages before they are moved into the file: half the work where keys are random."""
_ELSEWHERE = "The run goes on; its answers from here on are only in the frame and in bk.last_run()."


class Entry(NamedTuple):
    """What is kept of one finished answer: never any prompt text.

    Attributes
    ----------
    key : bytes
        16 bytes, from `Journal.key`.
    task : str
        For example ``"classify"``.
    provider, model : str, str or None
        Names for people; not part of the key.
    value : bytes
        The answer as JSON, opaque here.
    cap : int
        The output cap, in tokens, that it was made under.
    at : float
        Seconds since the epoch.
    """

    key: bytes
    task: str
    provider: str
    model: str | None
    value: bytes
    confidence: float | None
    confidence_source: str | None
    finish: str | None
    tokens_in: int
    tokens_out: int
    cap: int
    at: float


@dataclass(frozen=True, slots=True)
class Tally:
    """How many answers of one provider and task a journal holds, and from when (seconds since the epoch)."""

    provider: str
    task: str
    entries: int
    oldest: float
    newest: float


Kept: TypeAlias = tuple[bytes, float | None, str | None, int, int]
"""What a look-up finds: value, confidence, its source, output tokens, cap. A plain tuple, since the garbage collector
looks again and again at a million of any other."""
_KEPT = "value, confidence, confidence_source, tokens_out, cap"
_COLUMNS = Entry._fields
_LIST = ", ".join(_COLUMNS)
_KEEP = f"INSERT OR REPLACE INTO answers ({_LIST}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class _Unfit(Exception):
    """A file that is not ours to touch; the text is for the user."""


class Journal:
    """The answers in one file, for everybody in this process: get it with `open`, give it back with `close`.

    Attributes
    ----------
    path : Path
        Where the file is.
    is_new : bool
        Whether it held no answer when it was opened; whoever tells the user of it makes this False.
    problem : str or None
        Why nothing more is written, in words for the user. From then on tokens come back at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_new = False
        self.problem: str | None = None
        self._news: list[str] = []
        self._uses = 1
        self._readable = False
        self._salt = os.urandom(16)
        self._connection: sqlite3.Connection | None = None
        self._identity: _Identity | None = None
        self._is_damaged = False
        self._until_cap_check = 0
        self._patience = _GRACE
        self._start_afresh()
        self._begin()
        self._hash = blake2b(digest_size=16, key=self._salt)

    def _start_afresh(self) -> None:
        """Have no thread and nothing to write, as after a fork."""
        self._pending: deque[_Pending] = deque()
        self._disk = threading.Lock()
        self._state = threading.Lock()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._asleep = True
        self._ending = False

    def __repr__(self) -> str:
        return f"<Journal {str(self.path)!r}: {self.problem or 'open'}>"

    @staticmethod
    def open(path: Path) -> Journal:
        """Open the journal at ``path``, the same object for all of this process; folder and file are made if missing.

        Never raises: what is wrong stands in `problem`. One with a problem is not shared with later callers, so
        that each run tries again. May wait for other programs: not for the loop's thread.
        """
        path = Path(os.path.realpath(path))
        with _opening:
            for journal in _journals:
                if journal.path == path and journal.problem is None and not journal._ending:
                    journal._uses += 1
                    return journal
            journal = Journal(path)
            _journals.append(journal)
            return journal

    def close(self) -> None:
        """Give it back; whoever is last waits up to 2 s until all is written. Not for the loop's thread."""
        with _opening:
            self._uses -= 1
            if self._uses != 0:
                return
            self._ending = True
            if self._patience:  # else whoever ends or forks the process must still know of its writer
                _journals.remove(self)
        self._end(self._patience)

    def key(self, parts: Sequence[bytes]) -> bytes:
        """Hash what an answer depends on, salted by the file: 16 bytes, the same wherever the file goes."""
        # Each behind its length: ("ab", "c") and ("a", "bc") are two questions.
        digest = self._hash.copy()
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def key_maker(self, first: bytes) -> Callable[[bytes, bytes], bytes]:
        """Make ``key((first, second, third))`` for many seconds and thirds, at half the price."""
        begun = self._hash.copy()
        begun.update(len(first).to_bytes(8, "little") + first)

        def key(second: bytes, third: bytes) -> bytes:
            digest = begun.copy()
            digest.update(len(second).to_bytes(8, "little") + second + len(third).to_bytes(8, "little") + third)
            return digest.digest()

        return key

    def look_up(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        """Find the answers of ``keys``, whatever cap they were made under. Blocks; never raises (see `news`)."""
        found: dict[bytes, Kept] = {}
        if not self._readable:
            return found
        try:
            start = 0
            while start < len(keys):
                start, rows = _patiently(partial(self._find, keys, start))
                found.update((row[0], row[1:]) for row in rows)
        except _troubles() as trouble:
            if _is_damage(trouble):
                # The writer sees to it: nobody else moves files while they are in use.
                self._is_damaged = True
                self._rouse()
            else:
                self._give_up(_explain(trouble, self.path))
        return found

    def put(self, entry: Entry, token: Any, done: Done) -> None:
        """Have ``entry`` written soon and ``token`` handed to ``done`` then. Never blocks, never raises.

        ``done`` gets a list of the tokens of a batch, in the writer's thread; use the same ``done`` for all
        entries of a run, so that there is one call for a batch. The newest entry of a key stands.
        """
        self._hand_over((entry, token, done))

    def flush(self, timeout: float) -> bool:
        """Wait until all that was put is in the file; False if that took too long or cannot be (see `problem`)."""
        reached = threading.Event()
        self._hand_over((None, None, lambda _: reached.set()))
        self._hurry.set()
        return reached.wait(timeout) and self.problem is None

    def note_late(self, count: int) -> None:
        """Note that somebody shows ``count`` answers although they are not in the file yet, and waits no longer."""
        self._patience = 0.0
        if self.problem is None:  # else it was told
            self._news.append(
                f"{count:,} of the answers are not in the journal {self.path} yet: its disk or another program is "
                "slow. All are in the frame and in bk.last_run(), and these are written as soon as that is possible."
            )

    def news(self) -> list[str]:
        """What the user should be told since this was last asked: each text once."""
        told, self._news = self._news, []
        return told

    # ---- the loop's side ------------------------------------------------------------------------

    def _hand_over(self, item: _Pending) -> None:
        if self.problem is not None:
            _tell([item])
            return
        self._pending.append(item)
        if self._asleep:
            self._rouse()

    def _rouse(self) -> None:
        with self._state:
            self._asleep = False
            if self._thread is None:
                thread = threading.Thread(target=self._write_on, name="batchkit-journal", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down
                    self._asleep = True
                    return
                self._thread = thread
            self._wake.set()

    def _end(self, timeout: float) -> None:
        self._ending = True
        with self._state:
            thread = self._thread
        if thread is None:
            with self._disk:
                self._disconnect()
            return
        self._rouse()
        self._hurry.set()
        thread.join(timeout)

    # ---- the writer's thread --------------------------------------------------------------------

    def _write_on(self) -> None:
        while True:
            self._wake.wait()
            self._hurry.wait(_GATHER)
            self._hurry.clear()
            self._wake.clear()
            # Before the queue is emptied: whoever adds to it afterwards must wake this thread.
            self._asleep = True
            self._write_all()
            if self._ending and self._has_ended():
                return

    def _has_ended(self) -> bool:
        with self._disk:
            self._disconnect()
        with self._state:
            if self._pending or self._wake.is_set():
                return False
            self._thread = None
            return True

    def _write_all(self) -> None:
        if self._is_damaged and self.problem is None:
            self._attempt([])
        while self._pending:
            batch = [self._pending.popleft() for _ in range(min(_BATCH, len(self._pending)))]
            kept = [entry for entry, _, _ in batch if entry is not None]
            if kept and self.problem is None:
                self._attempt(kept)
            _tell(batch)

    def _attempt(self, kept: list[Entry]) -> None:
        try:
            try:
                if self._is_damaged:
                    self._begin_anew("a page cannot be read")
                _patiently(lambda: self._commit(kept))
            except _troubles() as trouble:
                if not _is_damage(trouble):
                    raise
                self._begin_anew(trouble)
                _patiently(lambda: self._commit(kept))
        except Exception as trouble:  # noqa: BLE001 - a thread that died would leave its runs waiting for ever
            self._give_up(_explain(trouble, self.path))

    def _commit(self, kept: list[Entry]) -> None:
        with self._disk:
            try:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_KEEP, kept)
                connection.execute("COMMIT")
                self._keep_to_cap(connection, len(kept))
            except BaseException:
                self._disconnect()  # which rolls back
                raise

    def _keep_to_cap(self, connection: sqlite3.Connection, added: int) -> None:
        self._until_cap_check -= added
        if self._until_cap_check > 0:
            return
        self._until_cap_check = _CAP_CHECK
        for _ in range(10):  # more than was added, so that it ends below; little enough to go unnoticed
            if _used(connection) <= _CAP or not _drop_oldest(connection, _TRIM):
                return

    def _begin_anew(self, damage: object) -> None:
        """Move the damaged file aside, unless another process has, and begin one with the same salt."""
        self._is_damaged = False
        with self._disk:
            self._disconnect()
            if _identity(self.path) == self._identity:
                aside = _move_aside(self.path)
                self._news.append(
                    f"The journal {self.path} was damaged ({damage}). It was moved aside to {aside.name} and a new "
                    "one begun: what it held will be asked again."
                )
                _touch(self.path)
                self._identity = None

    def _give_up(self, problem: str) -> None:
        if self.problem is None:
            self.problem = problem
            self._news.append(problem)

    # ---- the file -------------------------------------------------------------------------------

    def _begin(self) -> None:
        try:
            try:
                _patiently(self._set_up)
            except _troubles() as trouble:
                if not _is_damage(trouble):
                    raise
                self._begin_anew(trouble)
                _patiently(self._set_up)
        except _troubles() as trouble:
            self._give_up(_explain(trouble, self.path))
            self._try_reading_only(trouble)
        except ImportError:
            self._give_up(f"This Python comes without sqlite3, so no journal is kept. {_ELSEWHERE}")

    def _set_up(self) -> None:
        _touch(self.path)
        self._identity = _identity(self.path)
        connection = _connect(self.path)
        try:
            self._salt = _prepare(connection, self._salt)
            self.is_new = not connection.execute("SELECT EXISTS (SELECT 1 FROM answers)").fetchone()[0]
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._readable = True

    def _try_reading_only(self, trouble: Exception) -> None:
        if isinstance(trouble, _Unfit):
            return
        with contextlib.suppress(*_troubles()), _reading(self.path) as connection:
            self._salt = _salt(connection)
            self._readable = True

    def _connected(self) -> sqlite3.Connection:
        now = _identity(self.path)
        if now is None:
            raise _Unfit(
                f"The journal {self.path} vanished while it was in use. {_ELSEWHERE} The next run begins a new one."
            )
        if self._connection is None or now != self._identity:
            self._disconnect()
            connection = _connect(self.path)
            self._connection = connection
            if _prepare(connection, self._salt) != self._salt:
                raise _Unfit(f"The journal {self.path} was replaced by another one while it was in use. {_ELSEWHERE}")
            self._identity = now
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_troubles()):
                connection.close()

    def _find(self, keys: Sequence[bytes], start: int) -> tuple[int, list[Any]]:
        import sqlite3

        # Held for one statement only: no connection may be open at a fork, and the writer waits meanwhile.
        with self._disk, _reading(self.path) as connection:
            most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
            some = keys[start : start + min(most, _LOOK_UP)]
            marks = ", ".join("?" * len(some))
            rows = connection.execute(f"SELECT key, {_KEPT} FROM answers WHERE key IN ({marks})", some).fetchall()
        return start + len(some), rows


def _tell(batch: Iterable[_Pending]) -> None:
    for done, items in groupby(batch, key=itemgetter(2)):
        # A run that is gone does not stop another's answers.
        with contextlib.suppress(Exception):
            done([token for _, token, _ in items])


# ---- what a person does with a file -------------------------------------------------------------


def size(path: Path) -> int:
    """Bytes on disk, what waits beside the file included; 0 where there is none."""
    total = 0
    for part in _parts(path):
        with contextlib.suppress(FileNotFoundError):
            total += part.stat().st_size
    return total


def tally(path: Path) -> list[Tally]:
    """Count the entries by provider and task; BatchkitError where the file cannot be read."""
    counts = "SELECT provider, task, count(*), min(at), max(at) FROM answers GROUP BY provider, task ORDER BY 1, 2"
    return [Tally(*row) for row in _fetch(path, counts)]


def entries(path: Path) -> list[Entry]:
    """All entries in the order they were written; BatchkitError where the file cannot be read."""
    return [Entry(*row) for row in _fetch(path, f"SELECT {_LIST} FROM answers ORDER BY id")]


def prune(path: Path, *, before: float | None = None, at_most: int | None = None) -> int:
    """Drop entries made before a moment (seconds since the epoch), then the oldest until ``at_most`` bytes are left.

    Returns how many went. Their space is given back to the disk unless another program is writing.
    """
    if not path.exists():
        return 0
    with _for_people(path):
        return _patiently(lambda: _pruned(path, before, at_most))


def delete(path: Path) -> None:
    """Remove the file and what SQLite keeps beside it, unless it is no journal or another program uses it."""
    if not path.exists():
        return
    with _for_people(path), contextlib.ExitStack() as held:
        with _opening:
            ours = [journal for journal in _journals if journal.path == Path(os.path.realpath(path))]
        for journal in ours:
            held.enter_context(journal._disk)
            journal._disconnect()
        try:
            _patiently(lambda: _require_nobody(path))
        except _troubles() as trouble:
            # One that is damaged, or to which nothing can be written, may go; what is no journal or in use may not.
            if _kind(trouble) not in ("CORRUPT", "FULL", "READONLY", "IOERR"):
                raise
        for part in _parts(path):
            part.unlink(missing_ok=True)


def _require_nobody(path: Path) -> None:
    with _reading(path):
        pass
    with contextlib.closing(_connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")  # which only the last of all connections may ask for


def _fetch(path: Path, statement: str) -> list[Any]:
    def rows() -> list[Any]:
        with _reading(path) as connection:
            return connection.execute(statement).fetchall()

    if not path.exists():
        return []
    with _for_people(path):
        return _patiently(rows)


def _pruned(path: Path, before: float | None, at_most: int | None) -> int:
    with contextlib.closing(_connect(path)) as connection:
        _prepare(connection, os.urandom(16))
        dropped = 0
        if before is not None:
            dropped += connection.execute("DELETE FROM answers WHERE at < ?", (before,)).rowcount
        while at_most is not None and (used := _used(connection)) > at_most:
            rows = connection.execute("SELECT count(*) FROM answers").fetchone()[0]
            if not rows:
                break
            dropped += _drop_oldest(connection, max(1, rows * (used - at_most) // used))
        if dropped:
            with contextlib.suppress(*_troubles()):
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return dropped


@contextlib.contextmanager
def _for_people(path: Path) -> Iterator[None]:
    try:
        yield
    except _troubles() as trouble:
        text = _explain(trouble, path).replace(f" {_ELSEWHERE}", "")
        if _kind(trouble) == "FULL":
            text = f"The journal {path} cannot be changed: the disk is full. Make room, or .delete() the journal."
        raise BatchkitError(text) from trouble


# ---- SQLite ---------------------------------------------------------------------------------------


def _connect(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    import sqlite3  # not at import: not everybody keeps a journal

    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=0.25, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        connection = _opened(path)
    except _troubles() as trouble:
        # In a read-only folder SQLite cannot make its files beside this one; nobody writes, so it needs none.
        if _kind(trouble) not in ("CANTOPEN", "READONLY") or _beside(path, "-wal").exists():
            raise
        connection = _opened(path, "mode=ro&immutable=1")
    with contextlib.closing(connection):
        yield connection


def _opened(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        connection.execute("PRAGMA query_only=ON")
        _version(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    """Which version of our schema a file has, 0 if it is empty."""
    connection.execute("BEGIN")  # so that all three are of one moment
    try:
        application, version, tables = (
            connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    if application != _OURS and tables:
        raise _Unfit(
            "{path} is a database of another program and no journal. It was left as it is. "
            f"Name another file with journal= or BATCHKIT_JOURNAL. {_ELSEWHERE}"
        )
    if version > len(_MIGRATIONS):
        raise _Unfit(
            f"The journal {{path}} was written by a newer batchkit (format {version}; this one knows up to "
            f"{len(_MIGRATIONS)}). It was left as it is and is not used. Update batchkit, or name another file with "
            f"journal= or BATCHKIT_JOURNAL. {_ELSEWHERE}"
        )
    return int(version)


def _prepare(connection: sqlite3.Connection, salt: bytes) -> bytes:
    """Bring a file to the schema of this version; its salt, which is ``salt`` if it had none."""
    version = _version(connection)
    if version == 0:
        connection.execute("PRAGMA journal_mode=WAL")
    if version < len(_MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        for migrate in _MIGRATIONS[_version_within(connection) :]:
            migrate(connection, salt)
        connection.execute(f"PRAGMA user_version={len(_MIGRATIONS)}")
        connection.execute("COMMIT")
    return _salt(connection)


def _version_within(connection: sqlite3.Connection) -> int:
    # Asked again inside the transaction: another process may have migrated meanwhile.
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def m001_answers(connection: sqlite3.Connection, salt: bytes) -> None:
    """Version 1: the answers, and the file's salt."""
    connection.execute(f"PRAGMA application_id={_OURS}")
    connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    connection.execute("INSERT INTO meta VALUES ('salt', ?)", (salt,))
    connection.execute(
        """
        CREATE TABLE answers (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL UNIQUE,
            task TEXT NOT NULL,
            provider TEXT NOT NULL,
            model TEXT,
            value BLOB NOT NULL,
            confidence REAL,
            confidence_source TEXT,
            finish TEXT,
            tokens_in INTEGER NOT NULL,
            tokens_out INTEGER NOT NULL,
            cap INTEGER NOT NULL,
            at REAL NOT NULL
        )
        """
    )


_MIGRATIONS: tuple[Callable[[sqlite3.Connection, bytes], None], ...] = (m001_answers,)


def _salt(connection: sqlite3.Connection) -> bytes:
    row = connection.execute("SELECT value FROM meta WHERE name = 'salt'").fetchone()
    return bytes(row[0])


def _used(connection: sqlite3.Connection) -> int:
    pages, free, page = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * page)


def _drop_oldest(connection: sqlite3.Connection, count: int) -> int:
    oldest = "DELETE FROM answers WHERE id IN (SELECT id FROM answers ORDER BY id LIMIT ?)"
    return connection.execute(oldest, (count,)).rowcount


# ---- what can go wrong ----------------------------------------------------------------------------


def _troubles() -> tuple[type[Exception], ...]:
    import sqlite3

    return (sqlite3.Error, OSError, _Unfit)


def _kind(trouble: BaseException) -> str:
    """SQLite's name of an error without its prefix and details, "" for others."""
    name: str = getattr(trouble, "sqlite_errorname", "")
    return name.removeprefix("SQLITE_").partition("_")[0]


def _is_damage(trouble: BaseException) -> bool:
    return _kind(trouble) in ("CORRUPT", "NOTADB")


def _patiently(function: Callable[[], T]) -> T:
    """Call until no other program holds the file, for a while."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return function()
        except _troubles() as trouble:
            if _kind(trouble) not in ("BUSY", "LOCKED", "PROTOCOL") or time.monotonic() > end:
                raise
        time.sleep(0.005)  # SQLite does not wait by itself for a change of journal mode


def _explain(trouble: BaseException, path: Path) -> str:
    """What happened, to which file, and what to do."""
    if isinstance(trouble, _Unfit):
        return str(trouble).replace("{path}", str(path))
    kind = "CANTOPEN" if isinstance(trouble, OSError) else _kind(trouble)
    what, remedy = _REASONS.get(kind, _OTHERWISE)
    return f"The journal {path} {what.format(trouble=trouble, patience=_PATIENCE)}. {remedy} {_ELSEWHERE}"


_UNWRITABLE = (
    "cannot be written ({trouble})",
    "Give this user the right to write there, or name another file with journal= or BATCHKIT_JOURNAL.",
)
_OTHERWISE = ("cannot be used ({trouble})", "Name another file with journal= or BATCHKIT_JOURNAL.")
_LOCKED = (
    "has been locked by another program for more than {patience:g} s",
    "Close what holds it (a database browser, a backup), then run again.",
)
_DAMAGED = ("is damaged ({trouble})", "The next run moves it aside and begins a new one.")
_REASONS = {
    "READONLY": _UNWRITABLE,
    "CANTOPEN": _UNWRITABLE,
    "PERM": _UNWRITABLE,
    "AUTH": _UNWRITABLE,
    "BUSY": _LOCKED,
    "LOCKED": _LOCKED,
    "PROTOCOL": _LOCKED,
    "CORRUPT": _DAMAGED,
    "NOTADB": _DAMAGED,
    "FULL": (
        "cannot grow: the disk is full",
        "Make room, drop old answers with bk.journal().prune(), or name another file with journal=.",
    ),
}


# ---- files ----------------------------------------------------------------------------------------


def _touch(path: Path) -> None:
    """Make the folder and an empty file that only its owner can read, if there is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _parts(path: Path) -> tuple[Path, Path, Path]:
    return (path, _beside(path, "-wal"), _beside(path, "-shm"))


def _move_aside(path: Path) -> Path:
    aside = _beside(path, time.strftime(".corrupt-%Y-%m-%d"))
    number = 1
    while aside.exists():
        number += 1
        aside = _beside(path, time.strftime(f".corrupt-%Y-%m-%d-{number}"))
    for part in _parts(path):
        with contextlib.suppress(FileNotFoundError):
            os.replace(part, _beside(aside, part.name.removeprefix(path.name)))
    return aside


# ---- the process ----------------------------------------------------------------------------------

_opening = threading.Lock()
_journals: list[Journal] = []


@atexit.register
def _write_the_rest() -> None:
    end = time.monotonic() + _GRACE
    for journal in _journals:
        journal._end(max(0.0, end - time.monotonic()))


def _before_fork() -> None:
    """No connection may be open: SQLite takes a parent's locks for the child's own."""
    _opening.acquire()
    for journal in _journals:
        journal._disk.acquire()
        journal._disconnect()


def _after_fork_in_parent() -> None:
    for journal in _journals:
        journal._disk.release()
    _opening.release()


def _after_fork_in_child() -> None:
    """Threads do not survive a fork, and what was pending is the parent's to write."""
    global _opening
    _opening = threading.Lock()
    for journal in _journals:
        journal._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
