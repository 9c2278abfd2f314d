"""``df.llm`` and ``series.llm``: the verbs as methods. Holds no state: pandas makes a new one at each access."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import pandas as pd

from batchkit.errors import InputError, UnknownKeyword
from batchkit.runs import Asked, Plan, carry_out
from batchkit.verbs import VERBS
from batchkit.widgets import TextView

__all__ = ["FrameLLM", "FramePlan", "SeriesLLM", "SeriesPlan", "register"]


class FrameLLM:
    """Ask language models about the rows of this frame. Every verb names the column first.

    ``df.llm.classify(...)`` asks and returns the frame; ``df.llm.plan.classify(...)`` sends nothing
    and says what that would come to.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"<df.llm: {', '.join(VERBS)}; plan>"

    @property
    def plan(self) -> FramePlan:
        """The same verbs, but they only say what they would come to."""
        return FramePlan(self._frame)


class SeriesLLM:
    """Ask language models about the values of this Series. The answers come back as a Series."""

    def __init__(self, series: pd.Series[Any]) -> None:
        self._series = series

    def __repr__(self) -> str:
        return f"<series.llm: {', '.join(VERBS)}; plan>"

    @property
    def plan(self) -> SeriesPlan:
        """The same verbs, but they only say what they would come to."""
        return SeriesPlan(self._series)


class FramePlan:
    """Say what a verb would come to: rows, requests, tokens, cost and time. Sends nothing but a pilot asked for."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"<df.llm.plan: {', '.join(VERBS)}>"


class SeriesPlan:
    """Say what a verb would come to: rows, requests, tokens, cost and time. Sends nothing but a pilot asked for."""

    def __init__(self, series: pd.Series[Any]) -> None:
        self._series = series

    def __repr__(self) -> str:
        return f"<series.llm.plan: {', '.join(VERBS)}>"


# ---- from the one table of verbs to the methods ---------------------------------------------------

Verb: TypeAlias = Callable[..., Asked]
M = TypeVar("M", bound=Callable[..., Any])

_SAMPLE = inspect.Parameter("sample", inspect.Parameter.KEYWORD_ONLY, default=0, annotation="int")
_NOT_OF_SERIES = ("column", "overwrite")


def _frame_method(verb: Verb) -> Callable[..., pd.DataFrame]:
    @wraps(verb)
    def method(self: FrameLLM, *args: Any, **kwargs: Any) -> pd.DataFrame:
        return carry_out(verb(self._frame, *args, **kwargs), TextView).frame

    return _dressed(method, _signature(verb, returns=pd.DataFrame), verb.__doc__ or "")


def _series_method(verb: Verb) -> Callable[..., pd.Series[Any]]:
    @wraps(verb)
    def method(self: SeriesLLM, *args: Any, **kwargs: Any) -> pd.Series[Any]:
        asked = _of_series(verb, self._series, args, kwargs)
        return carry_out(asked, TextView).frame[asked.output.name]

    return _dressed(method, _signature(verb, returns=pd.Series, drop=_NOT_OF_SERIES), _series_doc(verb.__doc__ or ""))


def _frame_plan(verb: Verb) -> Callable[..., Plan]:
    @wraps(verb)
    def method(self: FramePlan, *args: Any, sample: int = 0, **kwargs: Any) -> Plan:
        return Plan(verb(self._frame, *args, **kwargs), TextView, _checked(sample))

    return _dressed(method, _signature(verb, returns=Plan, add=(_SAMPLE,)), _plan_doc(verb.__doc__ or ""))


def _series_plan(verb: Verb) -> Callable[..., Plan]:
    @wraps(verb)
    def method(self: SeriesPlan, *args: Any, sample: int = 0, **kwargs: Any) -> Plan:
        return Plan(_of_series(verb, self._series, args, kwargs), TextView, _checked(sample))

    signature = _signature(verb, returns=Plan, drop=_NOT_OF_SERIES, add=(_SAMPLE,))
    return _dressed(method, signature, _plan_doc(_series_doc(verb.__doc__ or "")))


def _of_series(verb: Verb, series: pd.Series[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
    for name in _NOT_OF_SERIES:
        if name in kwargs:
            text = f"series.llm.{verb.__name__} has no keyword {name!r}: it asks about the Series' own values."
            raise UnknownKeyword(text)
    name = series.name if isinstance(series.name, str) else "text"
    return verb(series.to_frame(name), name, *args, overwrite=True, **kwargs)


def _checked(sample: Any) -> int:
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 0:
        raise InputError(f"sample={sample!r} must be a whole number of rows.")
    return sample


def _dressed(method: M, signature: inspect.Signature, doc: str) -> M:
    """Let ``?`` and Tab show a method as it is called."""
    method.__signature__ = signature  # type: ignore[attr-defined]
    method.__doc__ = doc
    return method


def _signature(
    verb: Verb, *, returns: type, drop: tuple[str, ...] = (), add: tuple[inspect.Parameter, ...] = ()
) -> inspect.Signature:
    parameters = list(inspect.signature(verb).parameters.values())
    own = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    kept = [parameter for parameter in parameters[1:] if parameter.name not in drop]
    return inspect.Signature([own, *kept, *add], return_annotation=returns)


def _series_doc(doc: str) -> str:
    """The verb's docstring without what a Series does not take; it returns the answers alone."""
    for name in ("column", "overwrite"):
        doc = re.sub(rf"(?m)^( *){name} : .*\n(?:\1    .*\n)+", "", doc)
    doc = re.sub(r'df\.llm\.(\w+)\("text", (.*)\)\["\w+"\]', r'df["text"].llm.\1(\2)', doc)
    return re.sub(
        r"(?s)( *)Returns\n *-+\n.*?\n\n(?= *Raises)",
        r"\1Returns\n\1-------\n\1Series\n"
        r"\1    The answers alone, under the same index; ``bk.last_run().rows`` holds the rest.\n\n",
        doc,
    )


def _plan_doc(doc: str) -> str:
    """The verb's docstring for one who only plans."""
    sample = (
        "sample : int\n        Ask about so many rows first, and judge tokens, cost and time by them. They are "
        "not\n        asked again.\n\n    "
    )
    doc = doc.split("    Raises\n", maxsplit=1)[0]
    return re.sub(
        r"(?s)Returns\n *-+\n.*",
        f"{sample}Returns\n    -------\n    Plan\n"
        "        What it would come to; ``plan.run()`` does exactly that. No key is needed to plan.\n    ",
        doc,
    )


def register() -> None:
    """Attach ``llm`` to pandas' DataFrame and Series; safe to be called again."""
    if _is_new(pd.DataFrame, FrameLLM):
        pd.api.extensions.register_dataframe_accessor("llm")(FrameLLM)
    if _is_new(pd.Series, SeriesLLM):
        pd.api.extensions.register_series_accessor("llm")(SeriesLLM)


def _is_new(kind: Any, face: type) -> bool:
    current = getattr(kind, "llm", None)
    if current is not face and getattr(current, "__module__", None) == __name__:
        del kind.llm  # our own from before a reload: pandas would warn of it
    return current is not face


for _name, _verb in VERBS.items():
    setattr(FrameLLM, _name, _frame_method(_verb))
    setattr(SeriesLLM, _name, _series_method(_verb))
    setattr(FramePlan, _name, _frame_plan(_verb))
    setattr(SeriesPlan, _name, _series_plan(_verb))
