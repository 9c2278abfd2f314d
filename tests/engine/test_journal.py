"""Answers are written soon, found again, and survive whatever happens to their file or process."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchkit._engine import journal as module
from batchkit._engine.journal import Entry, Journal
from batchkit.errors import BatchkitError

ROOT = Path(__file__).parents[2]

# The journal alone, as a process of its own: without pandas it starts at once.
ALONE = """
import os, sys, types
package = types.ModuleType("batchkit")
package.__path__ = [os.path.join(os.getcwd(), "batchkit")]
sys.modules["batchkit"] = package
from pathlib import Path
from batchkit._engine.journal import Entry, Journal

def entry(key, at=0.0):
    return Entry(key, "classify", "server:model", None, b'"billing"', None, None, "stop", 1, 1, 256, at)

journal = Journal.open(Path(sys.argv[1]))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data" / "journal.sqlite"


@pytest.fixture
def opened():
    """Open journals that are closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def open_at(path):
            journal = Journal.open(path)
            stack.callback(journal.close)
            return journal

        yield open_at


@pytest.fixture
def hasty(monkeypatch):
    """Wait for other programs only a moment."""
    monkeypatch.setattr(module, "_PATIENCE", 0.0)


@pytest.fixture
def everyman():
    """A folder of the test's own, as a user whom permissions bind: root is bound by none."""
    folder = Path(tempfile.mkdtemp())
    nobody = 65534
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root:
        os.chown(folder, nobody, nobody)
        os.seteuid(nobody)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o700)
        shutil.rmtree(folder)


def entry(key, *, at=0.0, provider="server:model", task="classify", cap=256, value=b'"billing"'):
    return Entry(key, task, provider, "model", value, 0.9, "stated", "stop", 120, 12, cap, at)


def keys_of(journal, count, *, start=0):
    return [journal.key([b"%d" % number]) for number in range(start, start + count)]


def fill(journal, count, **kwargs):
    """Put entries and wait until they are written."""
    keys = keys_of(journal, count)
    for number, key in enumerate(keys):
        journal.put(entry(key, at=float(number), **kwargs), None, ignore)
    assert journal.flush(30)
    return keys


def ignore(tokens):
    pass


def run_alone(code, *arguments, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", ALONE + code, *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs,
    )  # fmt: skip


def ask_sqlite(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        answer = connection.execute(statement).fetchall()
        connection.commit()
    return answer


def is_sound(path):
    return ask_sqlite(path, "PRAGMA integrity_check") == [("ok",)]


def spoil(path):
    """Overwrite the answers, which begin behind the pages of schema and salt."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xa5" * (size - 2 * 4096))


# ---- what is put is found -----------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**40)
any_entry = st.builds(
    Entry,
    key=st.binary(min_size=16, max_size=16),
    task=texts,
    provider=texts,
    model=st.none() | texts,
    value=st.binary(max_size=50),
    confidence=st.none() | floats,
    confidence_source=st.none() | texts,
    finish=st.none() | texts,
    tokens_in=counts,
    tokens_out=counts,
    cap=counts,
    at=floats,
)


@given(some=st.lists(any_entry, max_size=20))
def test_what_is_put_is_found_to_the_last_bit(some):
    """Every field comes back as it was, the newest entry of a key stands, and other keys find nothing."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(path := Path(folder) / "journal.sqlite")
        for one in some:
            journal.put(one, None, ignore)
        assert journal.flush(30)
        found = journal.look_up([*{one.key for one in some}, b"not a known key!"])
        journal.close()
        assert {one.key: one for one in module.entries(path)} == {one.key: one for one in some}
    kept = {one.key: (one.value, one.confidence, one.confidence_source, one.tokens_out, one.cap) for one in some}
    assert found == kept


def test_answers_outlive_the_journal_object(path, opened):
    """A file that is closed and opened again holds its answers under the same keys."""
    keys = fill(first := Journal.open(path), 1_200)
    first.close()
    again = opened(path)
    assert keys_of(again, 1_200) == keys
    assert len(again.look_up(keys)) == 1_200
    assert (first.is_new, again.is_new, again.news()) == (True, False, [])


def test_many_keys_are_found_in_several_statements(path, opened, monkeypatch):
    """More keys than one statement takes are all looked up."""
    monkeypatch.setattr(module, "_LOOK_UP", 7)
    journal = opened(path)
    keys = fill(journal, 30)
    assert set(journal.look_up(keys)) == set(keys)
    assert journal.look_up([]) == {}


def test_an_answer_under_another_cap_is_found(path, opened):
    """The cap stands beside the answer and not in its key."""
    journal = opened(path)
    [key] = fill(journal, 1, cap=16)
    assert journal.look_up([key])[key] == (b'"billing"', 0.9, "stated", 12, 16)


def test_the_newest_answer_of_a_key_stands(path, opened):
    """Asking again replaces what was there, in the same batch or a later one."""
    journal = opened(path)
    [key] = fill(journal, 1)
    for value in (b'"delivery"', b'"defect"'):
        journal.put(entry(key, value=value), None, ignore)
    journal.flush(30)
    assert journal.look_up([key])[key][0] == b'"defect"'
    assert len(module.entries(path)) == 1


def test_tokens_come_back_once_written_and_in_order(path, opened):
    """Each token is handed over exactly once, with others of its batch, when its entry can be found."""
    journal, batches, missing = opened(path), [], []

    def done(tokens):
        batches.append(tokens)
        with contextlib.closing(sqlite3.connect(path)) as reader:
            rows = {key for (key,) in reader.execute("SELECT key FROM answers")}
        missing.extend(token for token in tokens if token not in rows)

    keys = keys_of(journal, 1_300)
    for key in keys:
        journal.put(entry(key), key, done)
    assert journal.flush(30)
    assert [token for tokens in batches for token in tokens] == keys
    assert missing == []
    assert len(batches) < 20


def test_runs_get_only_their_own_tokens(path, opened):
    """Several runs on one journal are told of their own entries, also if one of them fails to listen."""
    journal, first, second = opened(path), [], []

    def deaf(tokens):
        raise RuntimeError("the loop is closed")

    for number, key in enumerate(keys_of(journal, 9)):
        journal.put(entry(key), number, (first.extend, second.extend, deaf)[number % 3])
    assert journal.flush(30)
    assert (first, second) == ([0, 3, 6], [1, 4, 7])


def test_an_entry_that_cannot_be_stored_ends_no_thread(path, opened):
    """What SQLite cannot hold is a problem of the journal, and everybody's tokens come back."""
    journal, told = opened(path), []
    journal.put(entry(b"k" * 16)._replace(tokens_in=2**70), 1, told.extend)
    assert not journal.flush(30)
    journal.put(entry(b"l" * 16), 2, told.extend)
    assert told == [1, 2]
    assert "cannot be used" in journal.problem


def test_threads_share_a_journal(path, opened):
    """Many threads put and look up at once, and nothing is lost."""
    journal = opened(path)

    def work(start):
        for key in keys_of(journal, 200, start=start):
            journal.put(entry(key), None, ignore)
            journal.look_up([key])

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 1_600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert journal.flush(30)
    assert len(journal.look_up(keys_of(journal, 1_600))) == 1_600


def test_one_file_is_one_object(path, opened):
    """Within a process a file has one journal, whatever way its path is written, until the last user closes it."""
    first = opened(path)
    second = Journal.open(path.parent / "." / path.name)
    assert second is first
    second.close()
    fill(first, 1)
    assert opened(path) is first


def test_an_answer_that_comes_after_closing_is_kept(path):
    """What is put after the last close is still written."""
    journal = Journal.open(path)
    keys = fill(journal, 1)
    journal.close()
    late = journal.key([b"late"])
    journal.put(entry(late), None, ignore)
    assert journal.flush(30)
    assert set(journal.look_up([*keys, late])) == {*keys, late}


# ---- keys and privacy ---------------------------------------------------------------------------


@given(one=st.lists(st.binary(max_size=4), max_size=4), other=st.lists(st.binary(max_size=4), max_size=4))
def test_different_questions_have_different_keys(one, other):
    """Keys are equal exactly if all parts are, wherever one part ends and the next begins."""
    journal = _keyed
    assert (journal.key(one) == journal.key(other)) == (one == other)
    assert len(journal.key(one)) == 16


_keyed = Journal.__new__(Journal)
_keyed._hash = module.blake2b(digest_size=16, key=b"salt" * 4)


def test_each_file_has_a_salt_of_its_own(tmp_path, opened):
    """The same question has another key in another journal, and the same in a moved one."""
    one, other = opened(tmp_path / "one.sqlite"), opened(tmp_path / "other.sqlite")
    assert one.key([b"question"]) != other.key([b"question"])
    key = one.key([b"question"])
    one.flush(30)
    ask_sqlite(one.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(one.path, tmp_path / "moved.sqlite")
    assert opened(tmp_path / "moved.sqlite").key([b"question"]) == key


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_only_the_owner_can_read_it(path, opened):
    """The folder, the file and what SQLite keeps beside it are closed to others."""
    fill(opened(path), 1)
    modes = {part.name: stat.S_IMODE(part.stat().st_mode) for part in path.parent.iterdir()}
    assert modes == dict.fromkeys(["journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm"], 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# ---- size ---------------------------------------------------------------------------------------


def test_beyond_the_cap_the_oldest_go(path, opened, monkeypatch):
    """The writer keeps the file at its cap by dropping what was written first."""
    monkeypatch.setattr(module, "_CAP", 400_000)
    monkeypatch.setattr(module, "_CAP_CHECK", 500)
    monkeypatch.setattr(module, "_TRIM", 100)
    journal = opened(path)
    keys = fill(journal, 6_000)
    left = [one.key for one in module.entries(path)]
    assert left == keys[-len(left) :]
    assert 500 < len(left) < 4_000


def test_pruning_by_age_and_size(path, opened):
    """Pruning drops what is older than a moment, then the oldest until the size fits, and gives the space back."""
    journal = opened(path)
    fill(journal, 3_000)
    journal.flush(30)
    assert module.prune(path, before=1_000.0) == 1_000
    before = module.size(path)
    dropped = module.prune(path, at_most=150_000)
    left = [one.at for one in module.entries(path)]
    assert 0 < dropped < 2_000
    assert left == [float(at) for at in range(1_000 + dropped, 3_000)]
    assert path.stat().st_size < 160_000 < before
    assert module.prune(path, at_most=0) == len(left)
    assert module.prune(path.with_name("none.sqlite"), at_most=0) == 0


def test_a_tally_counts_by_provider_and_task(path, opened):
    """Entries are counted for each provider and task, with the first and the last moment."""
    journal = opened(path)
    for number, key in enumerate(keys_of(journal, 6)):
        journal.put(entry(key, at=float(number), provider="ab"[number % 2]), None, ignore)
    journal.flush(30)
    assert module.tally(path) == [
        module.Tally("a", "classify", 3, 0.0, 4.0),
        module.Tally("b", "classify", 3, 1.0, 5.0),
    ]
    assert module.tally(path.with_name("none.sqlite")) == []


# ---- what can go wrong --------------------------------------------------------------------------


def assert_goes_on(journal, *words):
    """A journal with a problem says so once, and gives every token back without an exception."""
    told = []
    journal.put(entry(b"k" * 16), 1, told.extend)
    assert not journal.flush(30)
    journal.put(entry(b"l" * 16), 2, told.extend)
    assert told == [1, 2]
    news = journal.news()
    assert news == [journal.problem]
    assert journal.news() == []
    for word in (str(journal.path), "The run goes on", *words):
        assert word in news[0]


def test_a_journal_of_a_newer_version_is_left_alone(path, opened):
    """A file of a later format is neither read nor changed, and the way on is named."""
    keys = fill(first := Journal.open(path), 1)
    first.close()
    ask_sqlite(path, "PRAGMA user_version=99")
    before = path.read_bytes()
    journal = opened(path)
    assert journal.look_up(keys) == {}
    assert_goes_on(journal, "newer batchkit (format 99", "Update batchkit")
    assert path.read_bytes() == before
    with pytest.raises(BatchkitError, match="newer batchkit"):
        module.prune(path, at_most=0)


@pytest.mark.parametrize("act", [module.tally, module.entries, module.prune, module.delete])
def test_a_database_of_another_program_is_left_alone(path, opened, act):
    """A file that is somebody else's is neither written nor deleted."""
    path.parent.mkdir()
    ask_sqlite(path, "CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    assert_goes_on(opened(path), "another program and no journal", "Name another file")
    with pytest.raises(BatchkitError, match="no journal"):
        act(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_moved_aside(path, opened):
    """A damaged file is kept under another name, a new journal begun in its place, and the user told."""
    path.parent.mkdir()
    for number in (1, 2):
        path.write_bytes(b"no database %d" % number * 500)
        journal = opened(path)
        [told] = journal.news()
        assert "damaged" in told
        assert "asked again" in told
        keys = fill(journal, 3)
        assert set(journal.look_up(keys)) == set(keys)
        assert journal.problem is None
        journal.close()
    aside = sorted(path.parent.glob("journal.sqlite.corrupt-*"))
    assert sorted(file.read_bytes()[:13] for file in aside) == [b"no database 1", b"no database 2"]


def test_a_file_that_is_no_database_is_not_deleted(path):
    """A path that was mistyped costs nobody a file."""
    path.parent.mkdir()
    path.write_text("text,label\n" * 100)
    with pytest.raises(BatchkitError, match="is damaged"):
        module.delete(path)
    assert path.exists()


def test_damage_is_noticed_when_the_file_is_opened(path, opened):
    """A damaged file is moved aside before a run relies on it."""
    fill(first := Journal.open(path), 3_000)
    first.close()
    spoil(path)
    journal = opened(path)
    [news] = journal.news()
    assert "moved aside" in news
    assert set(journal.look_up(keys := fill(journal, 3))) == set(keys)


@pytest.mark.parametrize("notices", ["reader", "writer"])
def test_damage_while_in_use_costs_only_what_was_there(path, opened, notices):
    """Whoever meets damage first, the file is moved aside and the run's keys hold in the new one."""
    keys = fill(first := Journal.open(path), 3_000)
    first.close()
    journal = opened(path)
    spoil(path)
    assert journal.news() == []
    if notices == "reader":
        assert journal.look_up(keys) == {}
    told = []
    for key in keys[:600]:
        journal.put(entry(key), key, told.extend)
    assert journal.flush(30)
    assert told == keys[:600]
    [news] = journal.news()
    assert "moved aside" in news
    assert set(journal.look_up(keys)) == set(keys[:600])
    assert journal.problem is None
    assert is_sound(path)


def test_a_lock_that_stays_is_a_problem(path, opened, hasty):
    """Another program that holds the file for long costs the journal, not the run."""
    journal = opened(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert_goes_on(journal, "locked by another program", "run again")
        other.execute("ROLLBACK")
    fill(opened(path), 1)


def test_a_lock_that_keeps_readers_out_is_a_problem(path, opened, hasty):
    """A look-up that is locked out finds nothing and says why."""
    keys = fill(first := Journal.open(path), 1)
    first.close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        journal = opened(path)
        assert journal.look_up(keys) == {}
        assert_goes_on(journal, "locked by another program")


def test_a_full_disk_is_a_problem(path, opened, monkeypatch):
    """When no page can be added the answers written before stay, and those after live in memory."""
    monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, "max_page_count=40"))
    journal, told = opened(path), []
    keys = keys_of(journal, 3_000)
    for key in keys:
        journal.put(entry(key), key, told.extend)
    assert not journal.flush(30)
    assert told == keys
    [news] = journal.news()
    assert "disk is full" in news
    found = journal.look_up(keys)
    assert 0 < len(found) < 3_000
    assert set(found) == set(keys[: len(found)])


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_a_folder_that_cannot_be_written_is_a_problem(everyman, opened):
    """Where no file can be made none is kept."""
    everyman.chmod(0o500)
    assert_goes_on(opened(everyman / "journal.sqlite"), "cannot be written", "journal=")
    assert_goes_on(opened(everyman / "deep" / "journal.sqlite"), "cannot be written", "journal=")


def test_a_folder_that_is_a_file_is_a_problem(tmp_path, opened):
    """A path through a file is no path."""
    (tmp_path / "file").touch()
    assert_goes_on(opened(tmp_path / "file" / "journal.sqlite"), "cannot be written")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("folder_mode", [0o500, 0o700])
def test_a_file_that_cannot_be_written_is_still_read(everyman, opened, folder_mode):
    """Answers in a read-only journal are found; new ones are not added."""
    path = everyman / "journal.sqlite"
    keys = fill(first := Journal.open(path), 3)
    first.close()
    path.chmod(0o400)
    everyman.chmod(folder_mode)
    journal = opened(path)
    assert keys_of(journal, 3) == keys
    assert set(journal.look_up(keys)) == set(keys)
    assert_goes_on(journal, "cannot be written")
    assert set(journal.look_up(keys)) == set(keys)


def test_a_folder_that_vanishes_is_a_problem(path, opened):
    """When the folder is gone the run goes on, and the next one begins anew."""
    journal = opened(path)
    keys = fill(journal, 3)
    shutil.rmtree(path.parent)
    assert_goes_on(journal, "vanished", "next run")
    assert journal.look_up(keys) == {}
    fill(opened(path), 3)
    assert len(module.entries(path)) == 3


def test_a_journal_that_was_replaced_is_a_problem(path, opened):
    """Keys of one file are never written into another."""
    journal = opened(path)
    fill(journal, 1)
    module.delete(path)
    other = run_alone("journal.close()", path)
    assert other.communicate(timeout=60)[1] == ""
    assert_goes_on(journal, "replaced")
    assert module.entries(path) == []


def test_deleting_removes_everything(path):
    """Nothing stays behind, neither the file nor what was beside it."""
    fill(journal := Journal.open(path), 3)
    module.delete(path)
    journal.close()
    assert list(path.parent.iterdir()) == []
    module.delete(path)


# ---- processes ----------------------------------------------------------------------------------


def test_two_processes_at_once(path):
    """Two processes that begin one journal together and write 1,000 answers each lose none."""
    code = """
told = []
for number in range(1_000):
    journal.put(entry(journal.key([b"%s %d" % (sys.argv[2].encode(), number)])), number, told.extend)
    if number % 50 == 0:
        journal.flush(60)
assert journal.flush(60), journal.problem
assert journal.news() == []
assert told == list(range(1_000))
"""
    both = [run_alone(code, path, name) for name in ("first", "second")]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, "")
    assert len(module.entries(path)) == 2_000
    assert is_sound(path)


def test_a_kill_loses_nothing_that_was_reported(path, opened):
    """After `kill -9` at 20 random moments every answer reported as written is there, and the file is sound."""
    code = """
import itertools
def report(tokens):
    os.write(1, "".join(f"{token}\\n" for token in tokens).encode())
for number in itertools.count():
    token = f"{sys.argv[2]} {number}"
    journal.put(entry(journal.key([token.encode()])), token, report)
    if number % 100 == 0:
        journal.flush(60)
"""
    moments = random.Random(4)
    reported = []
    for attempt in range(20):
        process = run_alone(code, path, attempt)
        reported += [process.stdout.readline().strip() for _ in range(moments.randrange(1, 800))]
        process.kill()
        reported += [line.strip() for line in process.stdout if line.endswith("\n")]
        process.communicate()
    assert is_sound(path)
    journal = opened(path)
    keys = {journal.key([token.encode()]) for token in reported}
    assert len(keys) == len(reported) > 20
    assert keys - set(journal.look_up(list(keys))) == set()


def test_the_end_of_the_process_writes_the_rest(path):
    """A process that ends right after its last answer has written it, without a word."""
    code = """
for number in range(700):
    journal.put(entry(journal.key([b"%d" % number])), number, lambda tokens: None)
"""
    process = run_alone(code, path)
    assert process.communicate(timeout=60) == ("", "")
    assert len(module.entries(path)) == 700


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_child_goes_on_by_itself(path):
    """A child writes and finds answers through the journal it inherited, while its parent does too."""
    code = """
import warnings
warnings.simplefilter("ignore")
nothing = lambda tokens: None
for number in range(200):
    journal.put(entry(journal.key([b"before %d" % number])), number, nothing)
child = os.fork()
who = b"parent" if child else b"child"
for number in range(500):
    journal.put(entry(journal.key([b"%s %d" % (who, number)])), number, nothing)
assert journal.flush(60), journal.problem
keys = [journal.key([b"%s %d" % (who, number)]) for number in range(500)]
assert len(journal.look_up(keys)) == 500
assert journal.news() == []
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    process = run_alone(code, path)
    assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0
    assert len(module.entries(path)) == 1_200
    assert is_sound(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_child_survives_its_parents_closing(path):
    """What a child writes after its parent has closed the journal is in the file."""
    code = """
import warnings
warnings.simplefilter("ignore")
def write(who):
    for number in range(100):
        journal.put(entry(journal.key([b"%s %d" % (who, number)])), number, lambda tokens: None)
    assert journal.flush(60), journal.problem
write(b"parent")
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
if os.fork() == 0:
    write(b"child, parent open")
    os.write(to_parent, b"1")
    os.read(from_parent, 1)
    write(b"child, parent closed")
    os.kill(os.getpid(), 9)
os.read(from_child, 1)
journal.close()
os.write(to_child, b"1")
os.wait()
"""
    process = run_alone(code, path)
    assert process.communicate(timeout=60) == ("", "")
    assert len(module.entries(path)) == 300
    assert is_sound(path)
