"""Routes: which provider for which row, decided on the frame before anything is sent."""

from __future__ import annotations

import enum
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit._logic.itinerary import NOBODY, Node, Seat, seated
from batchkit.errors import ColumnError, ConfigError, RouteError, nearest
from batchkit.providers import Provider
from batchkit.settings import strict

if TYPE_CHECKING:
    from batchkit.columns import Table

__all__ = [
    "Balance",
    "By",
    "Compiled",
    "Route",
    "Split",
    "When",
    "balance",
    "by",
    "compile_route",
    "require_route",
    "split",
    "when",
]

Condition: TypeAlias = (
    "str | Callable[[pd.DataFrame], Any] | pd.Series[Any] | pd.Index[Any] | pd.api.extensions.ExtensionArray"
    " | npt.NDArray[Any] | Sequence[bool | None]"
)
Target: TypeAlias = "Provider | Route | str | None"
Rows: TypeAlias = npt.NDArray[np.intp]

_SHOWN = 5
_NOT_IN_EXPRESSIONS = {
    r"\b(?:AND|OR|NOT)\b|&&|\|\|": "Write and, or, not.",
    r"\bis\b": "Write column.isna(), column.notna(), or == to compare.",
}
"""What other languages have, and how it is said here."""
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")


class _Unset(enum.Enum):
    """Tells "no default given" from the default None, which asks nobody."""

    REFUSE = enum.auto()


# ---- what a user writes -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class When:
    """Rules tried in order for each row; see `when`."""

    rules: tuple[tuple[Condition, Target], ...]
    default: Target | _Unset = _Unset.REFUSE

    def when(self, condition: Condition, route: Target) -> When:
        """Add a rule for the rows that no rule before it took; see `batchkit.when`."""
        self._require_open("when")
        rule = f"when({_said(condition)})"
        _require_condition(condition, rule)
        require_route(route, rule)
        return replace(self, rules=(*self.rules, (condition, route)))

    def otherwise(self, route: Target) -> When:
        """Say where the remaining rows go; None asks nobody for them."""
        self._require_open("otherwise")
        require_route(route, "otherwise")
        return replace(self, default=route)

    def _require_open(self, method: str) -> None:
        if not isinstance(self.default, _Unset):
            raise RouteError(f"{self!r}: .{method}() comes after .otherwise(), which takes all rows that are left.")

    def __repr__(self) -> str:
        rules = ".".join(f"when({_said(condition, quoted=True)}, {_named(target)})" for condition, target in self.rules)
        return rules if isinstance(self.default, _Unset) else f"{rules}.otherwise({_named(self.default)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class By:
    """A route for each value of a key; see `by`."""

    key: Hashable
    arms: tuple[tuple[Hashable, Target], ...]
    default: Target | _Unset = _Unset.REFUSE

    def __repr__(self) -> str:
        arms = ", ".join(f"{value!r}: {_named(target)}" for value, target in self.arms)
        default = "" if isinstance(self.default, _Unset) else f", default={_named(self.default)}"
        return f"by({_said(self.key, quoted=True)}, {{{arms}}}{default})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Split:
    """Rows divided by counts or by shares; see `split`."""

    parts: tuple[tuple[Target, int | float | EllipsisType], ...]

    @property
    def by_share(self) -> bool:
        """Whether the parts are shares of all rows, not counts of them."""
        return any(isinstance(size, float) for _, size in self.parts)

    def __repr__(self) -> str:
        parts = (f"{_named(target)}: {'...' if size is ... else size}" for target, size in self.parts)
        return f"split({{{', '.join(parts)}}})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Balance:
    """Providers that share one queue; see `balance`."""

    providers: tuple[Provider | str, ...]

    def __repr__(self) -> str:
        return f"balance({', '.join(map(_named, self.providers))})"


Route: TypeAlias = When | By | Split | Balance


@strict
def when(condition: Condition, route: Target) -> When:
    """Send the rows that meet a condition to a route.

    Parameters
    ----------
    condition : str, Series, array, or function
        An expression over the columns (``"lang == 'zh'"``, see `pandas.DataFrame.eval`), a
        boolean Series (aligned by its index where that is unique, else it must have the frame's
        own), a boolean array in row order, or a function of the DataFrame that returns one of
        these. Missing counts as False.
    route : provider, spec, route, or None
        None asks nobody. Routes nest.

    Returns
    -------
    When
        Go on with ``.when(condition, route)`` for the rows not taken yet and end with
        ``.otherwise(route)``; without it, rows that no condition takes are refused.

    Raises
    ------
    RouteError
        Here or when a run starts, before anything is sent; the message names the rule.

    Examples
    --------
    >>> when("lang == 'zh'", "anthropic:MODEL").otherwise("openai:MODEL")
    when("lang == 'zh'", 'anthropic:MODEL').otherwise('openai:MODEL')
    """
    return When(()).when(condition, route)


@strict
def by(
    key: Hashable | Callable[[pd.DataFrame], Any],
    mapping: Mapping[Any, Target],
    default: Target | _Unset = _Unset.REFUSE,
) -> By:
    """Send each row to the route of its key.

    Parameters
    ----------
    key : column label or function
        A column, or a function of the DataFrame that returns one key per row.
    mapping : mapping of key to route
        None as a route asks nobody.
    default : route, optional
        For keys that are missing or not in ``mapping``; without it, such rows are refused.

    Raises
    ------
    RouteError
        Here or when a run starts, before anything is sent; the message names the keys.

    Examples
    --------
    >>> by("lang", {"zh": "anthropic:MODEL"}, default="openai:MODEL")
    by('lang', {'zh': 'anthropic:MODEL'}, default='openai:MODEL')
    """
    rule = f"by({_said(key)})"
    if not isinstance(key, Hashable):
        raise RouteError(f"{rule}: the key is a column label or a function of the DataFrame, not {_shown(key)}.")
    _require_dict(mapping, f"{rule}: give a dict of key -> route with at least one key")
    for value, target in mapping.items():
        if pd.api.types.is_scalar(value) and pd.isna(value):
            raise RouteError(f"{rule}: {value!r} is no key. Rows with a missing key go to default=.")
        require_route(target, f"{rule}[{value!r}]")
    if not isinstance(default, _Unset):
        require_route(default, f"{rule}, default")
    return By(key, tuple(mapping.items()), default)


@strict
def split(parts: Mapping[Any, float | EllipsisType]) -> Split:
    """Divide the rows among routes.

    Parameters
    ----------
    parts : mapping of route to int, or of route to float
        Integers are counts, taken in row order, blank rows included; they must add up, or one of
        them is ``...`` and takes the rest. Floats are shares that sum to 1: each row goes by a
        hash of its text, so that shares hold in expectation, equal texts go together, and the
        same text goes the same way in a re-run, an appended or a shuffled frame.

    Raises
    ------
    RouteError
        Here or when a run starts, before anything is sent; the message gives the numbers.

    Examples
    --------
    >>> split({"openai:MODEL": 20, "anthropic:MODEL": ...})
    split({'openai:MODEL': 20, 'anthropic:MODEL': ...})
    """
    _require_dict(parts, "split: give a dict of route -> count or share with at least one route")
    for target in parts:
        require_route(target, "split")
    route = Split(tuple((target, _size(size, target)) for target, size in parts.items()))
    _require_sizes_that_fit(route)
    return route


@strict
def balance(*providers: Provider | str, prefer: None = None) -> Balance:
    """Let several providers share one queue; each takes rows as fast as its limits allow.

    Parameters
    ----------
    *providers : provider or spec
        At least two different ones.
    prefer : None
        Providers are equals.

    Raises
    ------
    RouteError
        Fewer than two providers, one of them twice, or something that is no provider.
    ConfigError
        ``prefer`` is not None.

    Examples
    --------
    >>> balance("openai:MODEL", "anthropic:MODEL")
    balance('openai:MODEL', 'anthropic:MODEL')
    """
    rule = f"balance({', '.join(map(_named, providers))})"
    if prefer is not None:
        raise ConfigError(f"{rule}: prefer={prefer!r} is not available; prices are not known yet. Leave prefer=None.")
    if len(providers) == 1 and isinstance(providers[0], (list, tuple)):
        raise RouteError(f"{rule}: give them one by one and not as a list: balance(a, b).")
    for provider in providers:
        if not isinstance(provider, (str, Provider)):
            raise RouteError(f"{rule}: it takes providers and specs such as 'openai:MODEL', not {_named(provider)}.")
    if len(set(providers)) < max(2, len(providers)):
        raise RouteError(f"{rule}: give at least two providers, each once.")
    return Balance(providers)


# ---- what is refused as it is written ---------------------------------------------------------


def require_route(target: object, rule: str) -> None:
    """Refuse what is no route, in the name of ``rule``."""
    if target is None or isinstance(target, (str, Provider, Route)):
        return
    if isinstance(target, type) and issubclass(target, Provider):
        raise RouteError(f"{rule}: {target.__name__} is a class. Give one of its providers: {target.__name__}(...).")
    begun = getattr(target, "__self__", None)
    if isinstance(begun, When):
        method = getattr(target, "__name__", "otherwise")
        raise RouteError(f"{rule}: {begun!r}.{method} stands there without its brackets. Write .{method}(...).")
    raise RouteError(
        f"{rule}: {_shown(target)} is no route. A route is a provider, a spec such as 'openai:MODEL', when(...), "
        f"by(...), split(...), balance(...), or None to ask nobody.{_meant(target)}"
    )


def _meant(target: object) -> str:
    """What someone probably wanted who gave this as a route."""
    if isinstance(target, (list, tuple, set)):
        return " Several providers share the rows in balance(a, b)."
    if isinstance(target, Mapping):
        return " A dict of key -> route goes into by(column, {...}), one of route -> share into split({...})."
    if callable(getattr(type(target), "provider", None)):
        return " A playground's server gives one with .provider()."
    if callable(target):
        return " A function that answers rows goes into bk.FunctionProvider(fn), one that chooses into by(fn, {...})."
    return ""


def _require_dict(given: object, request: str) -> None:
    if not isinstance(given, Mapping) or not given:
        raise RouteError(f"{request}, not {_shown(given)}.")


def _require_condition(condition: object, rule: str) -> None:
    if isinstance(condition, str) or callable(condition) or _is_per_row(condition):
        return
    swapped = " It comes first, then the route." if isinstance(condition, (Provider, Route)) else ""
    raise RouteError(
        f"{rule}: {_shown(condition)} is no condition. A condition is an expression over the columns, a boolean Series "
        f"or array, or a function of the DataFrame that returns one.{swapped}"
    )


def _is_per_row(values: object) -> bool:
    unordered = isinstance(values, (pd.DataFrame, Mapping, set, frozenset))
    return pd.api.types.is_list_like(values) and hasattr(values, "__len__") and not unordered


def _size(size: object, target: object) -> int | float | EllipsisType:
    if size is ...:
        return ...
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0:
        return int(size)
    if isinstance(size, (float, np.floating)) and size >= 0:
        return float(size)
    raise RouteError(
        f"split: {_shown(size)} for {_named(target)} is neither a count (an int, or ... for the rest) nor a share "
        "(a float such as 0.7), of zero or more."
    )


def _require_sizes_that_fit(route: Split) -> None:
    sizes = [size for _, size in route.parts]
    if not route.by_share:
        if sizes.count(...) > 1:
            raise RouteError(f"{route!r}: only one part can be ... (the rest).")
        return
    if not all(isinstance(size, float) for size in sizes):
        raise RouteError(f"{route!r}: counts (ints, ...) and shares (floats) are mixed. Give only one of the two.")
    total = math.fsum(size for size in sizes if isinstance(size, float))
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        raise RouteError(f"{route!r}: the shares sum to {total:g}, not to 1.")


def _named(target: object) -> str:
    return target.name if isinstance(target, Provider) else _shown(target)


def _said(rule: object, *, quoted: bool = False) -> str:
    """A condition or key in few words: the expression itself, or what kind of thing it is."""
    if isinstance(rule, (pd.Series, pd.Index)):
        return type(rule).__name__ if rule.name is None else f"{type(rule).__name__} {rule.name!r}"
    if callable(rule):
        return str(getattr(rule, "__name__", type(rule).__name__))
    if _is_per_row(rule) and not isinstance(rule, tuple):
        return type(rule).__name__
    return rule if isinstance(rule, str) and not quoted else _shown(rule)


def _shown(value: object) -> str:
    if isinstance(value, (pd.DataFrame, pd.Series)):  # Their repr is a table.
        return f"a {type(value).__name__}"
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if isinstance(value, Route) or len(text) <= 80 else f"{text[:77]}..."


# ---- what the engine needs --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A route applied to a table.

    Attributes
    ----------
    providers : tuple of Provider
        In order of first mention in the route, each once.
    itineraries : tuple of Node
        Distinct trees over positions in ``providers``, their seats numbered.
    codes : ndarray of int32
        For each row its position in ``itineraries``.
    news : tuple of str
        What the user probably did not mean.
    """

    providers: tuple[Provider, ...]
    itineraries: tuple[Node, ...]
    codes: npt.NDArray[np.int32]
    news: tuple[str, ...] = ()


def compile_route(route: Target, table: Table, resolve: Callable[[object], Provider]) -> Compiled:
    """Decide for every row of ``table`` who is asked.

    Parameters
    ----------
    route : provider, spec, route, or None
        None asks nobody.
    table : Table
        The frame, which conditions see, and the rows' texts, by which shares are divided.
    resolve : callable
        Turns a provider or a spec into a provider; raises `ConfigError` for anything else.

    Raises
    ------
    RouteError
        The route cannot be evaluated on this table; the message names the rule.
    """
    require_route(route, "route")
    compiler = _Compiler(table, resolve)
    compiler.place(route, np.arange(len(table.texts)), rule="", depth=0)
    return Compiled(tuple(compiler.providers), tuple(compiler.itineraries), compiler.codes, tuple(compiler.news))


class _Compiler:
    """Walks a route in reading order and gives each row its itinerary's code."""

    def __init__(self, table: Table, resolve: Callable[[object], Provider]) -> None:
        self.table = table
        self.resolve = resolve
        self.specs: dict[str, Provider] = {}
        self.providers: list[Provider] = []
        self.itineraries: dict[Node, int] = {}
        self.codes = np.full(len(table.texts), -1, dtype=np.int32)
        self.conditions = 0
        self.news: list[str] = []

    def place(self, target: Target, rows: Rows, rule: str, depth: int) -> None:
        """Send ``rows`` to ``target``, which stands in ``rule`` under ``depth`` splits by share."""
        match target:
            case None:
                self._assign(NOBODY, rows)
            case When():
                self._when(target, rows, depth)
            case By():
                self._by(target, rows, depth)
            case Split():
                self._split(target, rows, depth)
            case Balance(providers):
                seat = Seat(frozenset(self._lane(provider, f"{target!r}: ") for provider in providers))
                if len(seat.providers) < 2:
                    raise RouteError(f"{target!r}: these are one and the same provider; give at least two.")
                self._assign(seat, rows)
            case _:
                self._assign(Seat(frozenset({self._lane(target, rule)})), rows)

    def _assign(self, node: Node, rows: Rows) -> None:
        self.codes[rows] = self.itineraries.setdefault(seated(node), len(self.itineraries))

    def _lane(self, target: object, rule: str) -> int:
        provider = self._provider(target, rule)
        for position, known in enumerate(self.providers):
            if known is provider:
                return position
            if known.name == provider.name:
                raise RouteError(
                    f"{rule}two different providers are called {provider.name!r}. Give one of them another name=, so "
                    "that each row can say who answered."
                )
        self.providers.append(provider)
        return len(self.providers) - 1

    def _provider(self, target: object, rule: str) -> Provider:
        if isinstance(target, str) and target in self.specs:
            return self.specs[target]
        try:
            provider = self.resolve(target)
        except ConfigError as error:
            if rule:
                raise RouteError(f"{rule}{error}") from error
            raise
        if isinstance(target, str):
            self.specs[target] = provider
        return provider

    def _when(self, route: When, rows: Rows, depth: int) -> None:
        for condition, target in route.rules:
            self.conditions += 1
            rule = f"when({_said(condition)}) (condition {self.conditions} of the route): "
            met = _met(condition, self.table.frame, rule)[rows]
            self.place(target, rows[met], rule, depth)
            rows = rows[~met]
        if isinstance(route.default, _Unset):
            self._require_blank(rows, f"{route!r}: ", "match no condition", "Add .otherwise(route); .otherwise(None)")
        else:
            self.place(route.default, rows, f"{route!r}, otherwise: ", depth)

    def _by(self, route: By, rows: Rows, depth: int) -> None:
        rule = f"by({_said(route.key)}): "
        keys = self._keys(route.key, rule)
        places = {value: place for place, (value, _) in enumerate(route.arms)}
        arms = np.fromiter((_find(places, key) for key in keys[rows]), dtype=np.intp, count=len(rows))
        for place, (value, target) in enumerate(route.arms):
            self.place(target, rows[arms == place], f"by({_said(route.key)})[{value!r}]: ", depth)
        rows = rows[arms < 0]
        if isinstance(route.default, _Unset):
            asked = keys[rows[~self.table.blank[rows]]]
            problem = f"have a key without a provider ({_listed(_distinct(asked))})"
            self._require_blank(rows, rule, problem, "Add the keys, or default=route; default=None")
        else:
            self.news += _near_misses(keys[rows], route, rule)
            self.place(route.default, rows, f"by({_said(route.key)}), default: ", depth)

    def _keys(self, key: Any, rule: str) -> npt.NDArray[np.object_]:
        if callable(key):
            values = _per_row(_called(key, self.table.frame, rule), self.table.frame, rule)
        else:
            try:
                values = self.table.series(key)
            except ColumnError as error:
                raise RouteError(f"{rule}{error}") from error
        keys = np.fromiter(values.array, dtype=object, count=len(values))
        keys[values.isna().to_numpy(dtype=bool)] = None
        return keys

    def _require_blank(self, rows: Rows, rule: str, problem: str, remedy: str) -> None:
        """Ask nobody for ``rows`` that are blank; refuse any other, for there is no route for it."""
        refused = rows[~self.table.blank[rows]]
        if len(refused):
            raise RouteError(
                f"{rule}{len(refused)} of {len(self.table.texts)} rows {problem}: positions {_listed(refused)} "
                f"(index labels {_listed(self.table.frame.index[refused])}). {remedy} asks nobody."
            )
        if len(rows):
            self._assign(NOBODY, rows)

    def _split(self, route: Split, rows: Rows, depth: int) -> None:
        rule = f"{route!r}: "
        if route.by_share:
            part_of_row = _parts_by_share(route, self.table.texts[rows], depth)
            depth += 1
        else:
            part_of_row = np.repeat(np.arange(len(route.parts)), _counts(route, len(rows)))
        for place, (target, _) in enumerate(route.parts):
            self.place(target, rows[part_of_row == place], rule, depth)


def _find(places: Mapping[Hashable, int], key: Any) -> int:
    try:
        return places.get(key, -1)
    except TypeError:  # A key that cannot be hashed is none of ours.
        return -1


def _near_misses(keys: npt.NDArray[np.object_], route: By, rule: str) -> list[str]:
    """Say which keys go to the default though they look like one with a route: ``"ZH"`` and ``"zh"``, 1 and ``"1"``."""
    plain = {_plain(value): value for value, _ in route.arms}
    present = Counter(key for key in keys if isinstance(key, (str, int, float, np.generic)))
    near = {key: count for key, count in present.items() if _plain(key) in plain}
    if not near:
        return []
    pairs = [f"{_shown(key)} is not {_shown(plain[_plain(key)])}" for key in near]
    more = f", and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
    text = f"{rule}among the rows for default= are {sum(near.values()):,} whose key is nearly one of the route's: "
    return [f"{text}{', '.join(pairs[:_SHOWN])}{more}. Correct the keys if that is not meant."]


def _plain(key: object) -> str:
    return str(key).strip().casefold()


def _distinct(keys: npt.NDArray[np.object_]) -> list[Any]:
    # By repr: among keys without a provider may be some that cannot be hashed.
    return list({repr(key): key for key in keys}.values())


def _listed(values: Rows | pd.Index[Any] | list[Any]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(_shown(value) for value in values[:_SHOWN]) + more


# ---- conditions and keys ----------------------------------------------------------------------


def _met(condition: Any, frame: pd.DataFrame, rule: str) -> npt.NDArray[np.bool_]:
    """One plain boolean per row of the frame, or a `RouteError`."""
    if isinstance(condition, str):
        condition = _evaluated(condition, frame, rule)
    elif callable(condition):
        condition = _called(condition, frame, rule)
    return _booleans(_per_row(condition, frame, rule), rule)


def _evaluated(expression: str, frame: pd.DataFrame, rule: str) -> Any:
    def evaluate(frame: pd.DataFrame) -> Any:
        # Empty scopes, or "@name" would find this module's variables; one engine, so that the
        # answer does not depend on whether numexpr is installed.
        return frame.eval(expression, engine="python", local_dict={}, global_dict={})

    try:
        values = _called(evaluate, frame, rule, partial(_hint_at_expression, expression, frame))
    except RouteError as error:
        raise error from None  # the user's expression is in no line of pandas that a traceback would show
    if isinstance(values, pd.DataFrame):
        raise RouteError(f"{rule}a single = assigns. Write == to compare.")
    return values


def _hint_at_expression(expression: str, frame: pd.DataFrame, error: Exception) -> str:
    """What to write instead of an expression that pandas did not take."""
    if "@" in expression:
        return " An expression sees columns only; for @variables use a function of the frame."
    undefined = _UNDEFINED.search(str(error))
    if undefined is not None and f"{undefined[1]}." in expression:
        return " An expression names the columns alone, without their frame."
    if undefined is not None:
        near = nearest(undefined[1], frame.columns)
        return f" {near}" if near.startswith("Did you") else f" A text stands in quotes: '{undefined[1]}'."
    odd = (str(label) for label in frame.columns if not str(label).isidentifier())
    bare = next((label for label in odd if label in expression and f"`{label}`" not in expression), None)
    if bare is not None:
        return f" Write the column as `{bare}`, between backticks."
    for written, meant in _NOT_IN_EXPRESSIONS.items():
        if re.search(written, expression):
            return f" {meant}"
    return " What an expression cannot say, a function of the frame can: lambda df: df['text'].str.len() > 99."


def _hint_at_function(error: Exception) -> str:
    if "truth value of a" in str(error):
        return " The function gets the whole DataFrame and not a row: combine columns with & | ~, each in brackets."
    return ""


def _called(
    function: Callable[[pd.DataFrame], Any],
    frame: pd.DataFrame,
    rule: str,
    hint: Callable[[Exception], str] = _hint_at_function,
) -> Any:
    try:
        # A copy without data: a column that the function adds for itself stays out of the user's frame.
        return function(frame.copy(deep=False))
    except Exception as error:
        columns = ", ".join(
            f"{label!r}" if count == 1 else f"{label!r} ({count} times)"
            for label, count in Counter[Hashable](frame.columns).items()
        )
        text = f"{type(error).__name__}: {str(error).rstrip('.')}."
        raise RouteError(f"{rule}{text}{hint(error)} The columns are {columns}.") from error


def _per_row(values: Any, frame: pd.DataFrame, rule: str) -> pd.Series[Any]:
    """One value per row, in row order; the index of what is returned means nothing."""
    if isinstance(values, pd.Series):
        return _aligned(values, frame, rule)
    if not _is_per_row(values):
        raise RouteError(f"{rule}this gives {_shown(values)}, not one value per row.")
    if len(values) != len(frame):
        raise RouteError(f"{rule}this gives {len(values)} values for {len(frame)} rows.")
    if getattr(values, "ndim", 1) != 1:
        raise RouteError(f"{rule}this gives an array of shape {values.shape}, not one value per row.")
    return pd.Series(values)


def _aligned(series: pd.Series[Any], frame: pd.DataFrame, rule: str) -> pd.Series[Any]:
    if series.index.equals(frame.index):
        return series
    if not series.index.is_unique:
        raise RouteError(
            f"{rule}the Series ({len(series)} values) has an index with duplicates that is not the frame's "
            f"({len(frame)} rows), so its values cannot be matched to rows. Give it the frame's index, or pass "
            "an array."
        )
    places = _places(series.index, frame.index, rule)
    lost = np.flatnonzero(places < 0)
    if len(lost):
        raise RouteError(
            f"{rule}the Series has no value for {len(lost)} of {len(frame)} rows (index labels "
            f"{_listed(frame.index[lost])}). Compute it from this frame, or pass an array if it is in row order."
        )
    return series.iloc[places]


def _places(index: pd.Index[Any], wanted: pd.Index[Any], rule: str) -> Rows:
    if index.nlevels != wanted.nlevels:  # pandas would compare the levels there are.
        raise RouteError(
            f"{rule}the Series' index has {index.nlevels} levels, the frame's {wanted.nlevels}. Compute it from this "
            "frame, or pass an array if it is in row order."
        )
    try:
        return index.get_indexer(wanted)
    except (TypeError, ValueError, pd.errors.InvalidIndexError) as error:
        raise RouteError(f"{rule}the Series' index cannot be matched with the frame's: {error}.") from error


def _booleans(cells: pd.Series[Any], rule: str) -> npt.NDArray[np.bool_]:
    if cells.dtype == bool:
        return cells.to_numpy(dtype=bool)
    values = cells.to_numpy(dtype=object)
    if len(cells) and not (pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_object_dtype(cells.dtype)):
        raise RouteError(f"{rule}this gives values of dtype {cells.dtype} ({_listed(list(values))}), not booleans.")
    present = np.flatnonzero(~cells.isna().to_numpy(dtype=bool))
    other = [place for place in present if not isinstance(values[place], (bool, np.bool_))]
    if other:
        raise RouteError(
            f"{rule}this gives {_shown(values[other[0]])} at position {other[0]} (dtype {cells.dtype}), not a boolean."
        )
    met = np.zeros(len(cells), dtype=bool)
    met[present] = values[present].astype(bool)
    return met


# ---- splitting --------------------------------------------------------------------------------


def _counts(route: Split, total: int) -> list[int]:
    """How many rows each part takes; together exactly ``total``."""
    counts = [size for _, size in route.parts if isinstance(size, int)]
    given, rest = sum(counts), total - sum(counts)
    open_ended = len(counts) < len(route.parts)
    if rest < 0 or (rest > 0 and not open_ended):
        raise RouteError(
            f"{route!r}: the counts add up to {given}, but there are {total} rows here (blank ones included). "
            "Let one part be ... for the rest, or give shares as floats that sum to 1."
        )
    return [size if isinstance(size, int) else rest for _, size in route.parts]


def _parts_by_share(route: Split, texts: npt.NDArray[np.object_], depth: int) -> npt.NDArray[np.intp]:
    ends = np.cumsum([size for _, size in route.parts if isinstance(size, float)])
    # Divided by their sum, which rounding may leave beside 1: no text may fall behind the last end.
    ends /= ends[-1]
    fractions = {text: _fraction(text, depth) for text in set(texts)}
    row_fractions = np.fromiter(map(fractions.__getitem__, texts), dtype=np.float64, count=len(texts))
    return np.searchsorted(ends, row_fractions, side="right")


def _fraction(text: str, depth: int) -> float:
    """A number in [0, 1) that depends on nothing but the text, and the depth of splits it stands in."""
    # A split within a split sees only texts of one range of the outer hash, so it needs another.
    salt = str(depth).encode() if depth else b""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), salt=salt).digest()
    # The upper 53 bits: all that a float holds, so that none is rounded up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
