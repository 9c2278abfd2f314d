"""Defaults, and the only door to the environment."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from pathlib import Path

import pandas as pd
import pytest

import batchkit as bk
from batchkit import settings


@pytest.fixture(autouse=True)
def defaults(monkeypatch):
    """Give each test defaults of its own."""
    fresh = {
        "route": None,
        "progress": None,
        "details": None,
        "on_error": "continue",
        "journal": None,
        "max_cost": None,
    }
    monkeypatch.setattr(settings, "_defaults", fresh)
    return fresh


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- use --------------------------------------------------------------------------------------


def test_a_call_sets_defaults_for_good():
    """`bk.use(...)` holds from then on, for the settings named."""
    bk.use(on_error="raise", details="full")
    assert settings.default("on_error") == "raise"
    assert settings.default("details") == "full"
    assert settings.default("route") is None


def test_a_block_sets_defaults_for_its_length():
    """`with bk.use(...)` ends with the block, also inside another one and also when it raises."""
    bk.use(on_error="raise")
    with bk.use(on_error="continue", details=False):
        assert (settings.default("on_error"), settings.default("details")) == ("continue", False)
        with contextlib.suppress(ZeroDivisionError), bk.use(details="full"):
            assert settings.default("details") == "full"
            raise ZeroDivisionError
        assert settings.default("details") is False
    assert (settings.default("on_error"), settings.default("details")) == ("raise", None)


def test_none_takes_a_default_back():
    """A setting set to `None` is as if never set."""
    bk.use(route="openai:some-model", details=False)
    bk.use(route=None, details=None)
    assert (settings.default("route"), settings.default("details")) == (None, None)


def test_what_a_verb_is_given_wins(defaults):
    """A value given beats the default, and a `False` given is a value."""
    bk.use(details="full", progress=True)
    assert settings.default("details", False) is False
    assert settings.default("progress", False) is False


@pytest.mark.parametrize(("name", "meant"), [("rout", "route"), ("progres", "progress"), ("on_eror", "on_error")])
def test_an_unknown_setting_names_the_nearest(name, meant, defaults):
    """A setting nobody knows is refused and changes nothing."""
    before = dict(defaults)
    with pytest.raises(bk.UnknownKeyword, match=f"use has no keyword '{name}'. Did you mean '{meant}'") as caught:
        bk.use(**{name: True, "details": False})
    assert isinstance(caught.value, TypeError)
    assert defaults == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("progress", "bar"),
        ("progress", 1),
        ("progress", 0),
        ("details", "some"),
        ("details", 1),
        ("details", ["confidence"]),
        ("on_error", "stop"),
        ("on_error", None),
        ("on_error", True),
    ],
)
def test_a_value_that_a_setting_does_not_have_is_refused(name, value, defaults):
    """A bad value names itself and the choices, changes nothing, and is as bad in a verb."""
    before = dict(defaults)
    with pytest.raises(bk.ConfigError, match=f"{name}=.* is not one of"):
        bk.use(route="openai:some-model", **{name: value})
    assert defaults == before
    if value is not None:
        with pytest.raises(bk.ConfigError, match=f"{name}=.* is not one of"):
            settings.default(name, value)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"route": "nonsense"}, "'nonsense' is no provider spec"),
        ({"route": "opnai:gpt-6-luna"}, "Did you mean 'openai'"),
        ({"route": 3}, "bk.use, route: 3 is no route"),
        ({"route": bk.OpenAI}, "bk.use, route: OpenAI is a class"),
        ({"max_cost": "1"}, "max_cost='1' must be a number above 0"),
        ({"max_cost": 0}, "max_cost=0 must be a number above 0"),
    ],
)
def test_a_default_that_no_verb_could_use_is_refused_at_once(setting, says, defaults):
    """What a verb would refuse is refused where it is written, and nothing is changed."""
    before = dict(defaults)
    with pytest.raises(bk.ConfigError, match=re.escape(says)):
        bk.use(details=False, **setting)
    assert defaults == before


def test_a_journal_that_cannot_be_is_refused():
    """A default for the journal is a path, False or "off"."""
    with pytest.raises(bk.ConfigError, match="neither a path nor 'off'"):
        bk.use(journal=True)
    bk.use(journal="off")


def test_use_shows_what_it_set():
    """The repr of a block names its settings."""
    assert repr(bk.use(details=False)) == "use(details=False)"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, True),
        ("", True),
        ("1", True),
        ("On", True),
        ("0", False),
        ("off", False),
        ("FALSE", False),
    ],
)
def test_progress_from_outside(monkeypatch, said, shown):
    """`BATCHKIT_PROGRESS` decides where nobody else has."""
    if said is not None:
        monkeypatch.setenv("BATCHKIT_PROGRESS", said)
    assert settings.default("progress") is shown
    assert settings.default("progress", not shown) is not shown
    bk.use(progress=not shown)
    assert settings.default("progress") is not shown


@pytest.mark.parametrize("said", ["widget", "html", "text"])
def test_a_view_from_outside(monkeypatch, said):
    """`BATCHKIT_PROGRESS` may name the view, and `use` another one."""
    monkeypatch.setenv("BATCHKIT_PROGRESS", said.upper())
    assert settings.default("progress") == said
    with bk.use(progress="html"):
        assert settings.default("progress") == "html"


def test_nonsense_from_outside_is_refused(monkeypatch):
    """A value of `BATCHKIT_PROGRESS` that means nothing is an error and not a guess."""
    monkeypatch.setenv("BATCHKIT_PROGRESS", "maybe")
    with pytest.raises(bk.ConfigError, match="BATCHKIT_PROGRESS='maybe'"):
        settings.default("progress")


# ---- keys -------------------------------------------------------------------------------------


def test_a_key_is_found_in_the_environment_first(folder, monkeypatch):
    """The environment wins over `.env`."""
    (folder / ".env").write_text("SOME_API_KEY=from-file\n")
    monkeypatch.setenv("SOME_API_KEY", " from-environment\n")
    assert settings.find_key(["SOME_API_KEY"])[0] == "from-environment"


@pytest.mark.parametrize(
    "line", ["SOME_API_KEY=from-file", 'export SOME_API_KEY="from-file"', "SOME_API_KEY = from-file"]
)
def test_a_key_is_found_in_the_env_file_and_not_exported(folder, line):
    """`.env` of the working directory is read, and nothing of it reaches the environment."""
    (folder / ".env").write_text(f"OTHER=1\n{line}\n")
    before = dict(os.environ)
    assert settings.find_key(["SOME_API_KEY"])[0] == "from-file"
    assert dict(os.environ) == before


def test_a_key_in_the_env_file_is_taken_literally(folder, monkeypatch):
    """A dollar sign in a key is no variable."""
    monkeypatch.setenv("HOME_OF_KEYS", "elsewhere")
    (folder / ".env").write_text("SOME_API_KEY=a${HOME_OF_KEYS}b\n")
    assert settings.find_key(["SOME_API_KEY"])[0] == "a${HOME_OF_KEYS}b"


def test_only_the_working_directory_is_searched(folder, monkeypatch):
    """A `.env` further up is somebody else's."""
    (folder / ".env").write_text("SOME_API_KEY=from-file\n")
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert settings.find_key(["SOME_API_KEY"]) is None


@pytest.mark.parametrize("value", ["", "  "])
def test_a_blank_key_is_none(folder, monkeypatch, value):
    """A variable that is set to nothing is passed over for the next place and the next name."""
    monkeypatch.setenv("SOME_API_KEY", value)
    assert settings.find_key(["SOME_API_KEY"]) is None
    (folder / ".env").write_text("SOME_API_KEY=from-file\n")
    assert settings.find_key(["SOME_API_KEY"])[0] == "from-file"


def test_the_first_variable_that_is_set_wins(folder, monkeypatch):
    """Several names of one key are tried in their order."""
    monkeypatch.setenv("SECOND_API_KEY", "second")
    assert settings.find_key(["FIRST_API_KEY", "SECOND_API_KEY"])[0] == "second"
    monkeypatch.setenv("FIRST_API_KEY", "first")
    assert settings.find_key(["FIRST_API_KEY", "SECOND_API_KEY"])[0] == "first"
    assert settings.find_key([]) is None


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_text("no equals sign\n\n=x\n")])
def test_an_env_file_that_holds_no_keys(folder, make):
    """A folder of that name, or a file of other things, holds no key."""
    make(folder / ".env")
    assert settings.find_key(["SOME_API_KEY"]) is None


# ---- journal ------------------------------------------------------------------------------------


def test_the_journal_has_a_place_of_its_own(monkeypatch):
    """Unless told otherwise answers are kept in the user's data folder."""
    monkeypatch.delenv("BATCHKIT_JOURNAL")
    place = settings.journal_place()
    assert place.is_absolute()
    assert (place.parent.name, place.name) == ("batchkit", "journal.sqlite")
    monkeypatch.setenv("BATCHKIT_JOURNAL", "  ")
    assert settings.journal_place(None) == place


@pytest.mark.parametrize("value", [False, "off", " OFF "])
def test_no_journal_at_all(defaults, monkeypatch, value):
    """A journal is switched off by the value given, by the default or from outside, the nearer winning."""
    assert settings.journal_place(value) is None
    monkeypatch.setenv("BATCHKIT_JOURNAL", "outside.sqlite")
    defaults["journal"] = value
    assert settings.journal_place() is None
    assert settings.journal_place("given.sqlite").name == "given.sqlite"
    defaults["journal"] = None
    assert settings.journal_place().name == "outside.sqlite"
    if value:
        monkeypatch.setenv("BATCHKIT_JOURNAL", value)
        assert settings.journal_place() is None


def test_a_journal_at_a_path(folder):
    """A path is made absolute, `~` is the home, and nothing is made there."""
    assert settings.journal_place("kept/answers.sqlite") == folder / "kept" / "answers.sqlite"
    assert settings.journal_place(folder / "x") == folder / "x"
    assert settings.journal_place("~/x") == Path.home() / "x"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("value", [True, 0, 1, "", "  ", b"x", ["x"]])
def test_a_place_for_the_journal_that_is_none(value):
    """A value that is no path is refused and named."""
    with pytest.raises(bk.ConfigError, match=r"journal=.* is neither a path nor 'off'"):
        settings.journal_place(value)


@pytest.mark.parametrize("how", ["given", "use", "BATCHKIT_JOURNAL"])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.mkdir(), "is a folder. Name a file in it, such as "),
        (lambda path: path.write_text("text,label\n"), "is a file of another kind. Name one of its own, such as"),
    ],
)
def test_what_is_there_and_is_no_journal_is_refused(make, says, how, folder, monkeypatch, defaults):
    """A folder, or somebody's file, is not moved aside for a damaged journal: it is refused before anything is sent."""
    path = folder / "tickets.csv"
    make(path)
    before = [path.stat().st_ino, *path.parent.iterdir()]
    if how == "BATCHKIT_JOURNAL":
        monkeypatch.setenv("BATCHKIT_JOURNAL", str(path))
    with pytest.raises(bk.ConfigError, match=re.escape(says)):
        bk.use(journal=path) if how == "use" else settings.journal_place(path if how == "given" else None)
    assert [path.stat().st_ino, *path.parent.iterdir()] == before


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0and more"])
def test_a_journal_may_be_called_anything(content, folder):
    """A file that is empty, or SQLite's by its beginning, is taken under any name."""
    path = folder / "answers.of.mine"
    path.write_bytes(content)
    assert settings.journal_place(path) == path


@pytest.mark.parametrize("off", ["off", "OFF", " off ", "false", "0", "no"])
def test_a_journal_is_switched_off_in_the_usual_words(off, monkeypatch, defaults):
    """What switches progress off from outside switches a journal off, too."""
    monkeypatch.setenv("BATCHKIT_JOURNAL", off)
    assert settings.journal_place() is None


# ---- strict -----------------------------------------------------------------------------------


def test_strict_keeps_the_signature():
    """A function that refuses unknown keywords still shows its own parameters."""

    def ask(column, *, route=None):
        """Ask."""
        return column, route

    checked = settings.strict(ask)
    assert inspect.signature(checked) == inspect.signature(ask)
    assert checked.__doc__ == "Ask."
    assert checked("text", route=1) == ("text", 1)
    with pytest.raises(bk.UnknownKeyword, match=r"ask has no keyword 'frme'. There is 'column', 'route'\."):
        checked("text", frme=1)


def of_series(*args, **kwargs):
    """Label a Series."""
    return pd.Series(["t"]).llm.classify(*args, **kwargs)


def of_frame(*args, **kwargs):
    """Label a frame."""
    return pd.DataFrame({"text": ["t"]}).llm.classify(*args, **kwargs)


def planned(*args, **kwargs):
    """Plan to label a frame."""
    return pd.DataFrame({"text": ["t"]}).llm.plan.classify(*args, **kwargs)


@pytest.mark.parametrize(
    ("call", "args", "says"),
    [
        (of_frame, (["a"],), "df.llm.classify: missing a required argument: 'labels'. It is called as "),
        (of_frame, (["a"],), "df.llm.classify(column, labels, ...); all else goes by name, such as route=."),
        (of_frame, ("text", ["a"], "openai:m"), "df.llm.classify: too many positional arguments."),
        (of_series, ("text", ["a"]), "It is called as series.llm.classify(labels, ...); all else"),
        (planned, ("text",), "df.llm.plan.classify: missing a required argument: 'labels'."),
        (bk.OpenAI, (), "OpenAI: missing a required argument: 'model'. It is called as OpenAI(model, ...);"),
        (bk.Ollama, ("m", 4), "Ollama: too many positional arguments. It is called as Ollama(model, ...);"),
        (bk.use, ("openai:m",), "It is called as use(...); all else goes by name, such as route=."),
        (bk.tune, (), "It is called as tune(provider, sample, labels, concurrency, ...)"),
        (bk.when, ("x",), "when: missing a required argument: 'route'. It is called as when(condition, route)."),
        (bk.split, ("openai:m", "openai:n"), "split: too many positional arguments. It is called as split(parts)."),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_says_how_it_is_made(call, args, says):
    """Positional arguments that are missing or too many are a `TypeError` that shows the call, by its own name."""
    with pytest.raises(TypeError, match=re.escape(says)) as caught:
        call(*args)
    assert isinstance(caught.value, bk.CallError)


@pytest.mark.parametrize(
    ("call", "word", "meant"),
    [
        (of_frame, "provider", "route"),
        (of_frame, "prompt", "instructions"),
        (of_series, "system", "instructions"),
        (of_frame, "cache", "journal"),
        (planned, "pilot", "sample"),
        (bk.use, "provider", "route"),
    ],
)
def test_another_word_for_a_keyword_leads_to_it(call, word, meant):
    """Words that other tools use lead to the keyword that is meant."""
    with pytest.raises(bk.UnknownKeyword, match=rf"has no keyword '{word}'\. Did you mean '{meant}'\?"):
        call(**{word: 1})


# ---- proxies and certificates -----------------------------------------------------------------

CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
OPENAI = "https://api.openai.com/v1/chat/completions"


@pytest.fixture
def plain(monkeypatch):
    """Begin without proxies and certificates of whoever runs the tests."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", *CERTIFICATES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("variables", "url", "proxy"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, OPENAI, "http://proxy:3128"),
        ({"https_proxy": "http://proxy:3128"}, OPENAI, "http://proxy:3128"),
        ({"HTTPS_PROXY": "proxy:3128"}, OPENAI, "http://proxy:3128"),
        ({"ALL_PROXY": "http://proxy:3128"}, OPENAI, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://a:1", "ALL_PROXY": "socks5://b:1"}, OPENAI, "http://a:1"),
        ({"HTTPS_PROXY": "http://me:secret@proxy"}, OPENAI, "http://me:secret@proxy"),
        ({"HTTP_PROXY": "http://proxy:3128"}, OPENAI, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, "http://10.0.0.5/v1", "http://proxy:3128"),
        ({"HTTPS_PROXY": ""}, OPENAI, None),
        ({}, OPENAI, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "openai.com"}, OPENAI, None),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "example.com"}, OPENAI, "http://proxy"),
        ({"HTTPS_PROXY": "http://proxy", "NO_PROXY": "*"}, OPENAI, None),
        ({"HTTP_PROXY": "http://proxy", "NO_PROXY": "10.0.0.5:8000"}, "http://10.0.0.5:8000/v1", None),
        ({"HTTP_PROXY": "http://proxy"}, "http://localhost:11434/api/chat", None),
        ({"ALL_PROXY": "socks5://proxy"}, "http://[::1]:11434/api/chat", None),
    ],
)
def test_proxies_are_those_of_the_environment(plain, variables, url, proxy):
    """The usual variables name the proxy, with or without its scheme, and this machine is not asked through it."""
    for name, value in variables.items():
        plain.setenv(name, value)
    assert settings.find_proxy(url) == proxy


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("HTTPS_PROXY", "socks5://me:secret@127.0.0.1:7890", r"names a socks5:// proxy.*into NO_PROXY"),
        ("ALL_PROXY", "socks5h://127.0.0.1:7890", "ALL_PROXY names a socks5h:// proxy"),
        ("HTTPS_PROXY", "http://host:port", "HTTPS_PROXY is no address"),
        ("HTTPS_PROXY", "http://", "HTTPS_PROXY is no address"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_explained(plain, variable, value, says):
    """A proxy that speaks no HTTP, or is none, is named by its variable before anything is sent, and never shown."""
    plain.setenv(variable, value)
    with pytest.raises(bk.ConfigError, match=says) as caught:
        settings.find_proxy(OPENAI)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("variable", CERTIFICATES)
def test_certificates_are_those_that_other_tools_are_told_about(plain, folder, variable):
    """Any of the usual variables names the file, and one that is not there is a ConfigError, where it is needed."""
    assert settings.find_ca_file(OPENAI, None) is None
    path = folder / "company.pem"
    plain.setenv(variable, str(path))
    with pytest.raises(bk.ConfigError, match=f"{variable} names .*company.pem', which is no file"):
        settings.find_ca_file(OPENAI, None)
    path.write_text("")
    assert settings.find_ca_file(OPENAI, None) == str(path)
    assert settings.find_ca_file("http://127.0.0.1:8000/v1", "https://proxy:3128") == str(path)


@pytest.mark.parametrize("variable", CERTIFICATES)
def test_no_certificates_are_read_where_nothing_needs_any(plain, variable):
    """A server that is asked without TLS is asked whatever the certificates are."""
    plain.setenv(variable, "/nowhere/company.pem")
    assert settings.find_ca_file("http://127.0.0.1:8000/v1", None) is None
    assert settings.find_ca_file("http://host/v1", "http://proxy:3128") is None
