"""``df.llm`` and ``series.llm``: the verbs as methods. Holds no state: pandas makes a new one at each access."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import pandas as pd

from batchkit.errors import UnknownKeyword
from batchkit.verbs import VERBS

__all__ = ["FrameLLM", "SeriesLLM", "register"]


class FrameLLM:
    """Ask language models about the rows of this frame. Every verb names the column first."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"<df.llm: {', '.join(VERBS)}>"


class SeriesLLM:
    """Ask language models about the values of this Series. The answers come back as a Series."""

    def __init__(self, series: pd.Series[Any]) -> None:
        self._series = series

    def __repr__(self) -> str:
        return f"<series.llm: {', '.join(VERBS)}>"


def _frame_method(verb: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    @wraps(verb)
    def method(self: FrameLLM, *args: Any, **kwargs: Any) -> pd.DataFrame:
        return verb(self._frame, *args, **kwargs)

    method.__signature__ = _signature(verb, drop=())  # type: ignore[attr-defined]
    return method


def _series_method(verb: Callable[..., pd.DataFrame], output: str) -> Callable[..., pd.Series[Any]]:
    @wraps(verb)
    def method(self: SeriesLLM, *args: Any, **kwargs: Any) -> pd.Series[Any]:
        for name in ("column", "overwrite"):
            if name in kwargs:
                text = f"series.llm.{verb.__name__} has no keyword {name!r}: it asks about the Series' own values."
                raise UnknownKeyword(text)
        name = self._series.name if isinstance(self._series.name, str) else "text"
        frame = self._series.to_frame(name)
        answered = verb(frame, name, *args, overwrite=True, **kwargs)
        return answered[kwargs.get("output_column") or output]

    method.__signature__ = _signature(verb, drop=("column", "overwrite"))  # type: ignore[attr-defined]
    method.__doc__ = _series_doc(verb.__doc__ or "")
    return method


def _signature(verb: Callable[..., Any], drop: tuple[str, ...]) -> inspect.Signature:
    parameters = list(inspect.signature(verb).parameters.values())
    own = parameters[0].replace(name="self", annotation=inspect.Parameter.empty)
    return inspect.Signature([own, *(parameter for parameter in parameters[1:] if parameter.name not in drop)])


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
    setattr(SeriesLLM, _name, _series_method(_verb, "label"))
