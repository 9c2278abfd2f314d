"""Providers inside this process: the embedded model, and functions of the user's."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from types import CellType, CodeType
from typing import Any, Literal

from batchkit._engine.callers import Caller, EmbeddedCaller, FunctionCaller
from batchkit._logic.pricing import Price
from batchkit._logic.tasks import Task
from batchkit.errors import ConfigError
from batchkit.providers import checks
from batchkit.providers.base import Provider, fingerprint
from batchkit.records import Brief, Limits
from batchkit.settings import strict

__all__ = ["Embedded", "FunctionProvider"]


class Embedded(Provider):
    """A small embedding model inside this process: classifies offline, without key or network.

    It compares a text with the labels' names and descriptions, and with the verb's ``examples``
    where some are given. Good for a first look, for tests, and for the easy rows. Needs
    ``pip install "batchkit-notebook[embedded]"``.

    Parameters
    ----------
    name : str
        How it is called in columns and tables.

    Examples
    --------
    >>> import batchkit as bk
    >>> bk.Embedded()
    Embedded()
    """

    @strict
    def __init__(self, *, name: str = "embedded") -> None:
        self.name = checks.text("Embedded", "name", name)
        # One thread: the model computes, and more threads would only take turns.
        self.limits = Limits(max_concurrency=1, timeout=600.0)
        self.instructions = None

    def __repr__(self) -> str:
        return "Embedded()" if self.name == "embedded" else f"Embedded(name={self.name!r})"

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        if importlib.util.find_spec("wordllama") is None:
            raise ConfigError('the embedded model is not installed: pip install "batchkit-notebook[embedded]"')
        return EmbeddedCaller(brief)

    def _price(self) -> Price | None:
        return Price(0.0, 0.0, source="runs in this process")

    def _refuses(self, task: Task) -> str | None:
        if getattr(task, "multi_label", False):
            return "the embedded model gives one label a row; multi_label=True needs a language model."
        return None


class FunctionProvider(Provider):
    """A Python function that answers: your own client, another library, rules, a fake for a test.

    Parameters
    ----------
    fn : callable
        Gets a `Prompt` (a ``str``, the row's rendered text: for one column the cell unchanged,
        for several ``name: value`` lines; with ``.system``, ``.labels``, ``.schema``) and returns
        the answer (a label, or a dict with ``label`` and perhaps ``confidence``) or a reply's
        text. Async functions run on a loop; sync ones each in a thread.
    batched : bool
        Whether ``fn`` gets a list of prompts and returns a list of answers, in their order; an
        exception object in it is that row's failure.
    loop : {"engine", "caller"}
        ``"caller"`` runs ``fn`` on the loop of the thread that calls the verb, for clients bound
        to it. A loop that runs already (a notebook's) is then patched with nest-asyncio.
    name : str, optional
        How it is called in columns and tables. Default: the function's name.
    max_concurrency : int, optional
        Calls at once. Default 8; 1 for batched sync functions.
    rows_per_request : int
        The most prompts a batched function gets at once.
    version : str, optional
        Lets its answers be kept in the journal, under the function's qualified name (with the texts
        that a partial, a closure or an object holds when the provider is made) and this text: change
        it whenever the function answers otherwise. Without it they are not kept.
    timeout, deadline, max_retries, rpm, instructions
        As for `OpenAI`. ``TimeoutError`` and ``ConnectionError`` count as transient and are
        retried; any other exception is the row's error, of kind ``function``.

    Examples
    --------
    >>> import batchkit as bk
    >>> rules = bk.FunctionProvider(lambda prompt: "billing" if "invoice" in prompt else "other", name="rules")
    >>> rules
    FunctionProvider('rules')
    """

    @strict
    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        batched: bool = False,
        loop: Literal["engine", "caller"] = "engine",
        name: str | None = None,
        max_concurrency: int | None = None,
        rows_per_request: int = 64,
        rpm: float | None = None,
        timeout: float = 60.0,
        deadline: float = 600.0,
        max_retries: int = 5,
        instructions: str | None = None,
        version: str | None = None,
    ) -> None:
        where = "FunctionProvider"
        if not callable(fn):
            raise ConfigError(f"{where} needs a function; got {fn!r}.")
        if loop not in ("engine", "caller"):
            raise ConfigError(f"{where}: loop={loop!r} is neither 'engine' nor 'caller'.")
        self._function = fn
        self._version = None if version is None else checks.text(where, "version", version)
        self._identity = [] if version is None else _identity(fn)  # now: an object may keep texts of its calls
        self._batched = bool(batched)
        if not batched and rows_per_request != 64:
            raise ConfigError(f"{where}: rows_per_request={rows_per_request!r} is for batched=True.")
        self._rows = checks.whole(where, "rows_per_request", rows_per_request, 1) if batched else 1
        self.needs_home_loop = loop == "caller"
        usual = getattr(fn, "__name__", type(fn).__name__).strip("<>")
        self.name = checks.text(where, "name", usual if name is None else name)
        if max_concurrency is None:
            max_concurrency = 1 if batched and not inspect.iscoroutinefunction(fn) else 8
        self.limits = checks.limits(where, max_concurrency, rpm, None, timeout, deadline, max_retries)
        self.instructions = checks.instructions(where, instructions)

    def __repr__(self) -> str:
        return f"FunctionProvider({self.name!r}{', batched=True' if self._batched else ''})"

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        return FunctionCaller(
            self._function, batched=self._batched, batch=self._rows, home=home if self.needs_home_loop else None
        )

    def _collected(self, collect: Callable[..., Any]) -> Provider | None:
        if not self._batched:
            return None
        other = self._copied()
        other._function, other._batched, other._rows = collect(batch_fn=self._function).ainvoke, False, 1
        return other

    def _fingerprint(self, task: Task, brief: Brief) -> bytes | None:
        if self._version is None:
            return None
        return fingerprint(task, brief, function=self._identity, version=self._version)


def _identity(function: Any) -> list[Any]:
    """Module and qualified name, and what tells apart functions that share these.

    These are what a ``partial`` or a default is bound to, the texts a closure or an object holds, and what a lambda
    does. Numbers that a closure or an object holds are left out: they count calls, and would be others the next time.
    """
    if isinstance(function, functools.partial):
        return ["partial", _identity(function.func), _plain(function.args), _plain(function.keywords)]
    if inspect.ismethod(function):
        return [*_identity(function.__func__), _texts(getattr(function.__self__, "__dict__", {}))]
    if not inspect.isroutine(function):
        return [type(function).__module__, type(function).__qualname__, _texts(getattr(function, "__dict__", {}))]
    named: list[Any] = [str(function.__module__), function.__qualname__]
    if not inspect.isfunction(function):
        return named
    code = function.__code__
    kept = {name: _content(cell) for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)}
    bound = [_plain(function.__defaults__), _plain(function.__kwdefaults__)]
    return [*named, _texts(kept), *bound, _code(code) if code.co_name == "<lambda>" else []]


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _code(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), _plain(code.co_consts), list(code.co_names)]


def _texts(held: Mapping[str, object]) -> list[tuple[str, Any]]:
    """What is likely to be the same the next time: texts, and what consists of nothing else."""
    return sorted((name, _plain(value)) for name, value in held.items() if _is_text(value))


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple | frozenset) and all(map(_is_text, value)))


def _plain(value: object) -> Any:
    """A value as JSON can hold it, the same in every process; of what it cannot, the type."""
    match value:
        case CodeType():
            return _code(value)
        case list() | tuple():
            return [_plain(each) for each in value]
        case set() | frozenset():
            return sorted(repr(_plain(each)) for each in value)
        case Mapping():
            return sorted((repr(_plain(key)), repr(_plain(each))) for key, each in value.items())
        case str() | int() | float() | bool() | bytes() | None:
            return repr(value)
        case _:
            return type(value).__qualname__
