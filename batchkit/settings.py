"""The process's defaults, and the only door to the environment: keys, ``.env``, ``BATCHKIT_*``."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from batchkit._dialects.profiles import is_local
from batchkit.errors import CallError, ConfigError, UnknownKeyword

__all__ = [
    "PROVIDER_SETTINGS",
    "above_zero",
    "check_call",
    "check_with",
    "default",
    "find_ca_file",
    "find_key",
    "find_proxy",
    "from_environment",
    "journal_place",
    "strict",
    "use",
]

P = ParamSpec("P")
R = TypeVar("R")

_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "progress": (None, True, False, "widget", "html", "text"),
    "details": (None, True, False, "full"),
    "on_error": ("continue", "raise"),
}
_defaults: dict[str, Any] = {
    "route": None,
    "progress": None,
    "details": None,
    "on_error": "continue",
    "journal": None,
    "max_cost": None,
}
_JOURNALS = ("", ".sqlite", ".sqlite3", ".db", ".db3")
_SQLITE = b"SQLite format 3\0"
"""How every file of SQLite's begins."""
_checks: dict[str, Callable[[Any], None]] = {}

PROVIDER_SETTINGS = {
    "api_key", "base_url", "deadline", "endpoint", "extra_body", "headers", "max_concurrency", "max_output_tokens",
    "max_retries", "model", "price", "reasoning", "rpm", "temperature", "timeout", "tpm",
}  # fmt: skip
"""What is given to a provider and looked for at a verb."""


_MEANT = {
    "budget": "max_cost", "cache": "journal", "categories": "labels", "classes": "labels", "columns": "column",
    "limit": "max_cost", "name": "output_column", "output": "output_column", "pilot": "sample",
    "prompt": "instructions", "provider": "route", "providers": "route", "system": "instructions",
    "system_prompt": "instructions", "text_column": "column", "timeout_seconds": "timeout",
}  # fmt: skip
"""Other words for a keyword that no likeness of letters would lead to."""


def strict(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse a call that does not fit with an error that says how it is made; the signature stays visible."""
    parameters = list(inspect.signature(function).parameters.values())
    is_method = parameters[0].name == "self"
    own = inspect.Signature(parameters[is_method:])

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        where = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
        check_call(where, own, args[is_method:], kwargs)
        return function(*args, **kwargs)

    return checked


def check_call(where: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse arguments that ``signature`` has no place for, or leave one of its places empty.

    Raises
    ------
    UnknownKeyword
        Names the nearest keyword, or where the setting belongs.
    CallError
        Too many positional arguments, or too few: says how ``where`` is called.
    """
    kinds = {parameter.name: parameter.kind for parameter in signature.parameters.values()}
    positional = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    rest = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    by_name = {*positional, *rest}
    for name in kwargs:
        if name in by_name:
            continue
        if name in PROVIDER_SETTINGS and "route" in by_name:
            example = "bk.OpenAI('gpt-6-luna')" if name == "model" else f"bk.OpenAI(MODEL, {name}=...)"
            raise UnknownKeyword(
                f"{where} has no keyword {name!r}: it is a setting of the provider, as in route={example}."
            )
        if _MEANT.get(name) in by_name:
            raise UnknownKeyword(f"{where} has no keyword {name!r}. Did you mean {_MEANT[name]!r}?")
        raise UnknownKeyword.at(where, name, by_name)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        call = ", ".join([*positional, *(["..."] if rest else [])])
        by_name_only = f"; all else goes by name, such as {rest[0]}=" if rest else ""
        raise CallError(f"{where}: {error}. It is called as {where}({call}){by_name_only}.") from None


class use:  # noqa: N801 - reads as a verb: with bk.use(...):
    """Set defaults for the process, or for the length of a ``with`` block.

    Parameters
    ----------
    route : provider, string spec or route, optional
        Who is asked where a verb is given no ``route=``.
    progress : {None, True, False, "widget", "html", "text"}, optional
        Whether to show progress, and how. None and True go by where this runs.
    details : {None, True, False, "full"}, optional
        Which columns stand beside the answer: confidence, provider and error (None or True), none, or all.
    on_error : {"continue", "raise"}, optional
        What a row's error does to the run.
    journal : path or False, optional
        Where finished answers are kept, or nowhere. Default: a file in the user's data folder.
    max_cost : float, optional
        USD that a run may cost.

    Examples
    --------
    >>> import batchkit as bk
    >>> with bk.use(progress=False):
    ...     pass
    """

    @strict
    def __init__(
        self,
        *,
        route: Any = ...,
        progress: Any = ...,
        details: Any = ...,
        on_error: Any = ...,
        journal: Any = ...,
        max_cost: Any = ...,
    ) -> None:
        given = {
            "route": route,
            "progress": progress,
            "details": details,
            "on_error": on_error,
            "journal": journal,
            "max_cost": max_cost,
        }
        chosen = {name: value for name, value in given.items() if value is not ...}
        for name, value in chosen.items():
            check_choice(name, value)
            if name in _checks:
                _checks[name](value)
        self._before = {name: _defaults[name] for name in chosen}
        _defaults.update(chosen)

    def __enter__(self) -> use:
        return self

    def __exit__(self, *_: object) -> None:
        _defaults.update(self._before)

    def __repr__(self) -> str:
        return f"use({', '.join(f'{name}={_defaults[name]!r}' for name in self._before)})"


def default(name: str, given: Any = None) -> Any:
    """What holds for a setting: the value given, else the process's default (else ``BATCHKIT_PROGRESS``)."""
    if given is not None:
        check_choice(name, given)
        return given
    value = _defaults[name]
    if name == "progress" and value is None:
        return _progress_from_outside()
    return value


def journal_place(given: Any = None) -> Path | None:
    """Where the journal is kept, None for nowhere: the value given, else ``bk.use``, ``BATCHKIT_JOURNAL``, the default.

    The default is a file in the user's data folder. Nothing is made.

    Parameters
    ----------
    given : {None, False, "off"}, str or Path, optional
        None asks the next place; False and "off" mean no journal; anything else is a path, ``~`` being the home.

    Raises
    ------
    ConfigError
        For a value that is neither, a folder, or a file of another kind.

    Examples
    --------
    >>> journal_place("off") is None
    True
    >>> journal_place("answers.sqlite").name
    'answers.sqlite'
    """
    for source, value in (("journal", given), ("journal", _defaults["journal"]), ("BATCHKIT_JOURNAL", _from_outside())):
        if value is None:
            continue
        if value is False or (isinstance(value, str) and value.strip().lower() in ("off", "false", "no", "0")):
            return None
        if not isinstance(value, str | Path) or not str(value).strip():
            raise ConfigError(f"{source}={value!r} is neither a path nor 'off'. Name a file, or leave it out.")
        path = Path(value).expanduser().absolute()
        _check_place(source, path)
        return path
    from platformdirs import user_data_path

    return user_data_path("batchkit", appauthor=False) / "journal.sqlite"


def _check_place(source: str, path: Path) -> None:
    """Refuse what is there already and is no journal; one that is damaged is still called what journals are called."""
    if os.path.isdir(path):  # path.is_dir() raises where a folder on the way cannot be read
        raise ConfigError(f"{source}: {str(path)!r} is a folder. Name a file in it, such as {path / 'journal.sqlite'}.")
    if path.suffix.lower() in _JOURNALS or not os.path.isfile(path):
        return
    with contextlib.suppress(OSError), path.open("rb") as file:
        begins = file.read(len(_SQLITE))
        if begins not in (b"", _SQLITE):
            instead = path.with_suffix(".sqlite").name
            raise ConfigError(
                f"{source}: {str(path)!r} is a file of another kind. Name one of its own, such as {instead!r}."
            )


def _from_outside() -> str | None:
    return os.environ.get("BATCHKIT_JOURNAL", "").strip() or None


def check_choice(name: str, value: Any) -> None:
    """Refuse a value that a setting does not have."""
    if name == "journal":
        journal_place(value)
        return
    if name == "max_cost":
        above_zero(name, value)
        return
    choices = _CHOICES.get(name)
    if choices is None or any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        return
    text = f"{name}={value!r} is not one of {', '.join(map(repr, choices))}."
    raise ConfigError(text)


def above_zero(name: str, given: Any) -> float | None:
    """A finite number above 0, or None."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < float(given) < math.inf:
        raise ConfigError(f"{name}={given!r} must be a number above 0.")
    return float(given)


def check_with(name: str, check: Callable[[Any], None]) -> None:
    """Say how `use` checks what is known only further up, such as routes."""
    _checks[name] = check


def _progress_from_outside() -> bool | str:
    said = os.environ.get("BATCHKIT_PROGRESS", "").strip().lower()
    if said in ("widget", "html", "text"):
        return said
    if said in ("", "1", "true", "on"):
        return True
    if said in ("0", "false", "off"):
        return False
    raise ConfigError(f"BATCHKIT_PROGRESS={said!r} is not one of 'widget', 'html', 'text', 'on', 'off'.")


def find_key(variables: Sequence[str]) -> tuple[str, str] | None:
    """Look for a key in the environment, then in ``.env`` of the working directory (read, never exported).

    Returns the key and the variable it was found in.
    """
    for source in (os.environ, _dotenv()):
        for variable in variables:
            value = (source.get(variable) or "").strip()
            if value:
                return value, variable
    return None


def from_environment(variable: str) -> str | None:
    """What a variable of the environment holds, None where it is empty or not there."""
    return os.environ.get(variable, "").strip() or None


def find_proxy(url: str) -> str | None:
    """The proxy that the system or ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` name for a URL.

    None for a server on this machine, which no proxy elsewhere can reach.

    Raises
    ------
    ConfigError
        For a proxy that speaks no HTTP, or is no address.
    """
    parts = urlsplit(url)
    if parts.hostname is None or is_local(url) or urllib.request.proxy_bypass(parts.netloc):
        return None
    proxies = urllib.request.getproxies()
    name = parts.scheme if proxies.get(parts.scheme) else "all"
    proxy = proxies.get(name)
    return None if proxy is None else _checked_proxy(f"{name.upper()}_PROXY", proxy, parts.hostname)


def _checked_proxy(variable: str, proxy: str, host: str) -> str:
    # The value is not shown: it may hold a password.
    address = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(address)
        known = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        known = False
    if not known:
        raise ConfigError(f"{variable} is no address. Set it to http://HOST:PORT with the proxy's own, or unset it.")
    if parts.scheme not in ("http", "https"):
        raise ConfigError(
            f"{variable} names a {parts.scheme}:// proxy, which cannot be used here. Set it to the proxy's http:// "
            f"address, or put {host} into NO_PROXY to go without."
        )
    return address


def find_ca_file(*addresses: str | None) -> str | None:
    """The file of trusted certificates that other tools are told about, too; None where no address needs any."""
    if not any(address is not None and address.lower().startswith("https:") for address in addresses):
        return None
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        path = os.environ.get(variable)
        if path:
            if not Path(path).is_file():
                raise ConfigError(f"{variable} names {path!r}, which is no file. Correct or unset it.")
            return path
    return None


def _dotenv() -> Mapping[str, str | None]:
    path = Path(".env")
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    return dotenv_values(path, interpolate=False)
