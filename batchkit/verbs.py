"""The verbs: what can be asked about a frame, each defined once for every way to call it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from batchkit import columns, settings
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify
from batchkit.errors import ConfigError, InputError, LabelError
from batchkit.providers import resolve
from batchkit.routes import require_route
from batchkit.runs import Asked, Output, Terms

__all__ = ["VERBS", "classify"]


def classify(
    frame: pd.DataFrame,
    column: Hashable | Sequence[Hashable],
    labels: Any,
    *,
    route: Any = None,
    instructions: str | None = None,
    examples: Any = None,
    multi_label: bool = False,
    output_column: str | None = None,
    overwrite: bool = False,
    details: bool | str | None = None,
    on_error: str | None = None,
    confidence: str | None = "auto",
    max_cost: float | None = None,
    max_seconds: float | None = None,
    refresh: bool = False,
    dedupe: bool = True,
    progress: bool | str | None = None,
    journal: str | Path | bool | None = None,
) -> Asked:
    """Give every row one of the labels, or with ``multi_label`` all that apply.

    Parameters
    ----------
    column : label or list of labels
        The column that holds the text; several are shown to the model as ``name: value`` lines.
        Blank and missing cells are asked of nobody.
    labels : list, dict, Enum or Literal
        The labels, any scalars; a dict gives label -> description for the model. They come back
        equal and of the same type.
    route : provider, string spec or route, optional
        Who answers which row. Default: what `use` set.
    instructions : str, optional
        What the model should know about the task.
    examples : list of (text, label) or DataFrame, optional
        Answers to learn from; a frame needs the input column(s) and one named as the output.
    multi_label : bool
        Whether a row may have several labels, or none: answers are lists in label order.
    output_column : str, optional
        Name of the answer's column. Default ``"label"``.
    overwrite : bool
        Whether existing columns that are not our own earlier output may be replaced.
    details : {True, False, "full"}, optional
        Columns beside the answer: confidence, provider and error (True, the default), none, or all.
    on_error : {"continue", "raise"}, optional
        Whether the first row that fails ends the run.
    confidence : {"auto", None}
        Whether to ask how sure the answer is. It costs a few output tokens.
    max_cost : float, optional
        USD. Nothing new is sent once the next request could cost more; what is done is kept, the
        other rows end as ``budget``. All prices must be known.
    max_seconds : float, optional
        Nothing new is sent after so long; likewise.
    refresh : bool
        Whether to ask again although the journal holds the answer.
    dedupe : bool
        Whether equal texts are asked once.
    progress : bool or "text", optional
        Whether to show a progress line.
    journal : path or False, optional
        Where finished answers are kept, so that nothing is paid for twice; False keeps none.
        Default: a file in the user's data folder (see `journal`).

    Returns
    -------
    DataFrame
        The same rows in the same order under the same index, and new columns: ``label``
        (Categorical, the labels in the order given), ``label_confidence`` (float),
        ``label_provider`` (Categorical: who answered), ``label_error`` (Categorical of error
        kinds, missing where all is well).

    Raises
    ------
    ConfigError, InputError
        What is wrong can be known before anything is sent: an unknown column, labels that
        cannot be told apart, a route that cannot be evaluated, a missing key.
    RowFailed
        With ``on_error="raise"``.
    Interrupted
        After the stop button or Ctrl-C; ``bk.last_run().frame`` holds the finished rows.

    Examples
    --------
    >>> import pandas as pd, batchkit as bk
    >>> rules = bk.FunctionProvider(lambda text: "billing" if "charged" in text else "other", name="rules")
    >>> df = pd.DataFrame({"text": ["I was charged twice", "Lovely shop"]})
    >>> df.llm.classify("text", ["billing", "other"], route=rules, progress=False)["label"].tolist()
    ['billing', 'other']
    """
    output = Output(
        _output_name(output_column, "label"),
        _details(settings.default("details", details)),
        columns.list_values if multi_label else lambda values: columns.label_values(values, known.labels),
    )
    if isinstance(labels, str) and labels in frame.columns:
        raise LabelError(f"labels={labels!r} is a column. The column comes first: classify({labels!r}, ['a', 'b']).")
    known = LabelSet.of(labels)
    if confidence not in ("auto", None):
        raise ConfigError(f"confidence={confidence!r} is not one of 'auto', None.")
    _check_flags(multi_label=multi_label, overwrite=overwrite, refresh=refresh, dedupe=dedupe)
    table = columns.read(frame, column)
    output = replace(output, is_again=columns.protect(frame, output.names(), output.name, overwrite))
    task = Classify(
        known,
        _instructions(instructions),
        _examples(examples, table, output.name, known, multi_label=multi_label),
        multi_label,
        confidence is not None,
    )
    terms = Terms(
        settings.journal_place(journal),
        refresh,
        dedupe,
        settings.default("on_error", on_error),
        settings.above_zero("max_cost", settings.default("max_cost", max_cost)),
        settings.above_zero("max_seconds", max_seconds),
    )
    return Asked(table, task, _route(route), output, terms, settings.default("progress", progress))


VERBS: Mapping[str, Callable[..., Asked]] = {"classify": classify}
"""Every verb by name; what stands here is what ``df.llm`` and ``series.llm`` offer."""


def _route(given: Any) -> Any:
    route = settings.default("route", given)
    if route is None:
        raise ConfigError(
            "no route: who should answer? One of\n"
            "  route=bk.OpenAI('gpt-6-luna')    a vendor, with a key in OPENAI_API_KEY\n"
            "  route=bk.Ollama('qwen3')    Ollama on this machine\n"
            "  bk.use(route=bk.Embedded())    offline and free, from here on"
        )
    return route


def _check_default_route(given: Any) -> None:
    require_route(given, "bk.use, route")
    if isinstance(given, str):
        resolve(given)


settings.check_with("route", _check_default_route)


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if value is not True and value is not False:
            raise InputError(f"{name}={value!r} must be True or False.")


def _output_name(given: Any, usual: str) -> str:
    if given is None:
        return usual
    if not isinstance(given, str) or not given:
        raise InputError(f"output_column={given!r} must be a text that is not empty.")
    return given


def _details(given: Any) -> bool | str:
    return True if given is None else given


def _instructions(given: Any) -> str | None:
    if given is not None and not isinstance(given, str):
        raise InputError(f"instructions must be a text; got {given!r}.")
    return given


def _examples(
    given: Any, table: columns.Table, output: str, labels: LabelSet, *, multi_label: bool
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(text, positions of its labels) for each example."""
    if given is None:
        return ()
    if isinstance(given, pd.DataFrame):
        shown = columns.read(given, list(table.columns))
        pairs: Iterable[Any] = zip(shown.texts, shown.series(output), strict=True)
    elif isinstance(given, Iterable) and not isinstance(given, (str, Mapping)):
        pairs = given
    else:
        raise InputError(f"examples must be (text, label) pairs or a DataFrame; got {type(given).__name__}.")
    read = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(f"example {i} is {pair!r}, not a (text, label) pair.")
        text, answer = pair
        answers = answer if multi_label and isinstance(answer, (list, tuple, set)) else [answer]
        positions = [labels.find(label, typed=True) for label in answers]
        if None in positions:
            raise LabelError(f"example {i} has the label {answer!r}, which is not one of {list(labels.labels)!r}.")
        read.append((text, tuple(sorted(position for position in positions if position is not None))))
    return tuple(read)
