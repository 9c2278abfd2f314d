"""``df.llm`` and ``series.llm``: the verbs as methods. Holds no state: pandas makes a new one at each access."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeAlias, TypeVar

import pandas as pd

from batchkit.errors import ConfigError, InputError, UnknownKeyword
from batchkit.runs import Asked, Job, Plan, Run, carry_out, carry_out_async, start
from batchkit.settings import check_call
from batchkit.verbs import VERBS
from batchkit.widgets import choose

__all__ = ["FrameLLM", "SeriesLLM", "register"]


Verb: TypeAlias = Callable[..., Asked]
P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., Any])


class _Face:
    """One way to use the verbs, on one frame or Series."""

    _title: ClassVar[str]

    def __init__(self, source: Any) -> None:
        self._source = source

    def __repr__(self) -> str:
        return f"<{self._title}: {', '.join(VERBS)}>"


class FramePlan(_Face):
    """Say what a verb would come to: rows, requests, tokens, cost and time. Sends nothing but a pilot asked for."""

    _title = "df.llm.plan"


class FrameAio(_Face):
    """The verbs as coroutine functions: ``out = await df.llm.aio.classify(...)``, on any event loop."""

    _title = "df.llm.aio"


class FrameBackground(_Face):
    """The verbs in the background: each returns a `Job` at once, and other cells can be used meanwhile."""

    _title = "df.llm.background"


class SeriesPlan(FramePlan):
    _title = "series.llm.plan"


class SeriesAio(FrameAio):
    _title = "series.llm.aio"


class SeriesBackground(FrameBackground):
    _title = "series.llm.background"


SeriesPlan.__doc__, SeriesAio.__doc__, SeriesBackground.__doc__ = (
    FramePlan.__doc__,
    (FrameAio.__doc__ or "").replace("df.llm", "series.llm"),
    FrameBackground.__doc__,
)


class FrameLLM(_Face):
    """Ask language models about the rows of this frame. Every verb names the column first.

    ``df.llm.classify(...)`` asks, waits and returns the frame. The same verbs, otherwise used:
    ``await df.llm.aio.classify(...)``; ``job = df.llm.background.classify(...)``;
    ``df.llm.plan.classify(...)`` sends nothing and says what it would come to.
    """

    _title = "df.llm"

    @property
    def plan(self) -> FramePlan:
        """The same verbs, but they only say what they would come to."""
        return FramePlan(self._source)

    @property
    def aio(self) -> FrameAio:
        """The same verbs, to be awaited."""
        return FrameAio(self._source)

    @property
    def background(self) -> FrameBackground:
        """The same verbs, in the background."""
        return FrameBackground(self._source)


class SeriesLLM(_Face):
    """Ask language models about the values of this Series. The answers come back as a Series.

    ``series.llm.classify(...)`` asks, waits and returns the answers. The same verbs, otherwise
    used: ``.aio``, ``.background``, ``.plan``.
    """

    _title = "series.llm"

    @property
    def plan(self) -> SeriesPlan:
        """The same verbs, but they only say what they would come to."""
        return SeriesPlan(self._source)

    @property
    def aio(self) -> SeriesAio:
        """The same verbs, to be awaited."""
        return SeriesAio(self._source)

    @property
    def background(self) -> SeriesBackground:
        """The same verbs, in the background."""
        return SeriesBackground(self._source)


# ---- from the one table of verbs to the methods ---------------------------------------------------

_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SAMPLE = inspect.Parameter("sample", inspect.Parameter.KEYWORD_ONLY, default=0, annotation="int")
_NOT_OF_SERIES = ("column", "overwrite")


def _of_frame(verb: Verb, frame: pd.DataFrame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
    return verb(frame, *args, **kwargs)


def _of_series(verb: Verb, series: pd.Series[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
    name = series.name if isinstance(series.name, str) else "text"
    return verb(series.to_frame(name), name, *args, overwrite=True, **kwargs)


def _frame_of(run: Run) -> pd.DataFrame:
    return run.frame


def _series_of(run: Run) -> pd.Series[Any]:
    return run.frame[run.output_name]


def _attach(verb: Verb, on_series: bool) -> None:
    """Give all four ways of a frame, or of a Series, a method for a verb."""
    read, take = (_of_series, _series_of) if on_series else (_of_frame, _frame_of)
    drop = _NOT_OF_SERIES if on_series else ()
    answers = _signature(verb, pd.Series if on_series else pd.DataFrame, drop)
    handle, forecast = _signature(verb, Job, drop), _signature(verb, Plan, drop, (_SAMPLE,))

    def asked_for(self: _Face, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
        where = f"{self._title}.{verb.__name__}"
        for name in drop:
            if name in kwargs:
                raise UnknownKeyword(f"{where} has no keyword {name!r}: it asks about the Series' own values.")
        check_call(where, signature, args, kwargs)
        return read(verb, self._source, args, {name: value for name, value in kwargs.items() if name != "sample"})

    @wraps(verb)
    def call(self: _Face, *args: Any, **kwargs: Any) -> Any:
        asked = asked_for(self, answers, args, kwargs)
        return take(carry_out(asked, choose(asked.progress)))

    @wraps(verb)
    async def aio(self: _Face, *args: Any, **kwargs: Any) -> Any:
        asked = asked_for(self, answers, args, kwargs)
        return take(await carry_out_async(asked, choose(asked.progress)))

    @wraps(verb)
    def background(self: _Face, *args: Any, **kwargs: Any) -> Job:
        asked = asked_for(self, handle, args, kwargs)
        return start(asked, choose(asked.progress, blocking=False), take)

    @wraps(verb)
    def plan(self: _Face, *args: Any, **kwargs: Any) -> Plan:
        asked = asked_for(self, forecast, args, kwargs)
        return Plan(asked, choose(asked.progress), _checked(kwargs.get("sample", 0)))

    doc = _series_doc(verb.__doc__ or "") if on_series else verb.__doc__ or ""
    plain, awaited, job, planned = (
        (SeriesLLM, SeriesAio, SeriesBackground, SeriesPlan)
        if on_series
        else (FrameLLM, FrameAio, FrameBackground, FramePlan)
    )
    setattr(plain, verb.__name__, _dressed(_refusing(call), answers, doc))
    setattr(awaited, verb.__name__, _dressed(_refusing_later(aio), answers, _without_example(doc)))
    setattr(job, verb.__name__, _dressed(_refusing(background), handle, _job_doc(doc)))
    setattr(planned, verb.__name__, _dressed(_refusing(plan), forecast, _plan_doc(doc)))


def _checked(sample: Any) -> int:
    if isinstance(sample, bool) or not isinstance(sample, int) or sample < 0:
        raise InputError(f"sample={sample!r} must be a whole number of rows.")
    return sample


def _refusing(method: Callable[P, R]) -> Callable[P, R]:
    """Let a refusal show the user's line, and not the way that it took through here: in a notebook, all is printed."""

    @wraps(method)
    def brief(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except (ConfigError, InputError) as error:
            raise error.with_traceback(None) from error.__cause__

    return brief


def _refusing_later(method: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """The same for what is awaited."""

    @wraps(method)
    async def brief(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await method(*args, **kwargs)
        except (ConfigError, InputError) as error:
            raise error.with_traceback(None) from error.__cause__

    return brief


def _dressed(method: M, signature: inspect.Signature, doc: str) -> M:
    """Let ``?`` and Tab show a method as it is called."""
    whole = signature.replace(parameters=[_SELF, *signature.parameters.values()])
    method.__signature__ = whole  # type: ignore[attr-defined]
    method.__doc__ = doc
    return method


def _signature(
    verb: Verb, returns: type, drop: tuple[str, ...], add: tuple[inspect.Parameter, ...] = ()
) -> inspect.Signature:
    """The verb's own without the frame, which the accessor knows."""
    parameters = list(inspect.signature(verb).parameters.values())[1:]
    kept = [parameter for parameter in parameters if parameter.name not in drop]
    return inspect.Signature([*kept, *add], return_annotation=returns)


def _without_example(doc: str) -> str:
    return doc.split("    Examples\n", maxsplit=1)[0].rstrip() + "\n    "


def _job_doc(doc: str) -> str:
    """The verb's docstring for one who does not wait."""
    return re.sub(
        r"(?s)Returns\n *-+\n.*?\n\n(?= *Raises)",
        "Returns\n    -------\n    Job\n        At once. ``job.result()`` waits and returns what the verb returns.\n\n",
        _without_example(doc),
    )


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


for _verb in VERBS.values():
    _attach(_verb, on_series=False)
    _attach(_verb, on_series=True)
