"""What all providers are: a name, limits, and a lane for each run."""

from __future__ import annotations

import asyncio
import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random
from typing import Any, ClassVar, Self

import orjson

from batchkit._engine import bridge
from batchkit._engine.callers import Caller
from batchkit._engine.execute import Execution
from batchkit._engine.ledger import ANSWERED, Ledger
from batchkit._engine.plan import LaneSpec, Plan
from batchkit._logic.itinerary import Seat, seated
from batchkit._logic.labels import LabelSet
from batchkit._logic.pricing import Price
from batchkit._logic.prompting import PROMPT_VERSION
from batchkit._logic.tasks import Classify, Task
from batchkit.errors import ConfigError
from batchkit.records import ERROR_KINDS, Brief, Limits

__all__ = ["Check", "Provider", "fingerprint"]


_TRIAL = "I was charged twice for one order."


@dataclass(frozen=True, slots=True)
class Check:
    """What `Provider.check` found."""

    provider: str
    ok: bool
    """Key, model and structured output work."""
    seconds: float
    """From the request to its answer, a new connection included where there was none."""
    model: str | None = None
    """As the provider names it."""
    error: str | None = None
    message: str | None = None


def _checked(provider: str, ledger: Ledger) -> Check:
    log = ledger.attempts
    seconds = log.ended[-1] - log.started[0] if len(log) else math.nan
    if ledger.state[0] == ANSWERED:
        return Check(provider, True, seconds, log.model[-1])
    return Check(provider, False, seconds, None, ERROR_KINDS[ledger.kind[0]], ledger.messages[0])


class Provider:
    """Something that answers questions about rows. Compared by identity."""

    name: str
    """How it is called in columns and tables; unique within a run."""
    takes_cap: ClassVar[bool] = False
    """Whether the tokens of its replies can be capped."""
    limits: Limits
    instructions: str | None
    """Added to the task's instructions at this provider only."""
    needs_home_loop = False

    @functools.cached_property
    def _own(self) -> object:
        # Not id(self): another provider may get the same one once this is gone.
        return object()

    def check(self) -> Check:
        """Make one tiny request: whether the key is right, the model there, and its answer in the form asked for.

        The connection stays open for the next run.

        Returns
        -------
        Check
            ``ok``, the answering ``model``, ``seconds``, and where it is not ok ``error`` and ``message``.

        Raises
        ------
        ConfigError
            A key is missing.

        Examples
        --------
        >>> import batchkit as bk
        >>> bk.FunctionProvider(lambda text: "billing", name="rules").check().ok
        True
        """
        task = Classify(LabelSet(("billing", "delivery")))
        with bridge.home_loop(self.needs_home_loop) as home:
            lane = self._lane(task, [_TRIAL], home)
            lane = replace(lane, limits=replace(lane.limits, max_retries=0, deadline=lane.limits.timeout))
            plan = Plan(
                task, ["I was charged twice for one order."], [0], [1], (seated(Seat(frozenset({0}))),), (lane,)
            )
            ledger = Ledger(plan)
            ledger.announce()
            future = bridge.submit(Execution(plan, ledger, rng=Random()).run())
            try:
                bridge.wait(future, lambda: None, home)
            except KeyboardInterrupt:
                future.cancel()
                raise
        return _checked(self.name, ledger)

    def as_runnable(self, *, labels: Any = None) -> Any:
        """Make a LangChain Runnable that asks this provider, within its limits and with its retries.

        It takes a text, a prompt value, or system messages with one human message, and returns the
        reply's text; a `FunctionProvider` returns what its function does.

        Parameters
        ----------
        labels : list, dict, Enum or Literal, optional
            As for ``classify``: the Runnable then takes a text and returns one of these.

        Returns
        -------
        langchain_core.runnables.Runnable
            A failure is raised as `BatchkitError`.

        Raises
        ------
        ConfigError
            langchain-core is not installed.

        Examples
        --------
        >>> import batchkit as bk
        >>> shout = bk.FunctionProvider(lambda prompt: prompt.upper(), name="shout").as_runnable()  # doctest: +SKIP
        >>> shout.invoke("hello")                                                                   # doctest: +SKIP
        'HELLO'
        """
        from batchkit.providers.langchain import as_runnable

        return as_runnable(self, labels)

    def _adjusted(self, max_concurrency: int | None, max_output_tokens: int | None) -> Provider:
        """The same provider with other limits; it is the same for its budget and its journal."""
        if max_concurrency is None:
            return self._copied()
        return self._with_slots(min(max_concurrency, self.limits.max_concurrency))

    def _with_slots(self, slots: int) -> Self:
        """The same provider with another ``max_concurrency``, be it higher."""
        other = self._copied()
        other.limits = replace(self.limits, max_concurrency=slots, is_usual=False)
        return other

    def _collected(self, collect: Callable[..., Any]) -> Provider | None:
        """The same provider asked by single calls that are merged; None where it takes no lists.

        ``collect`` makes a `RunnableBatch` of its ``bound`` or its ``batch_fn``.
        """
        return None

    def _copied(self) -> Self:
        # Not copy.copy: that goes by what a pickle holds, and a pickle holds no key.
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, _own=self._own)
        return other

    def _without_key(self) -> Provider:
        """The same provider, to plan with: nothing is sent, so no key is needed."""
        return self

    def _brief(self, task: Task, texts: Sequence[str]) -> Brief:
        """What all its requests of a run have in common."""
        return task.brief(self.instructions)

    def _caller(self, brief: Brief, home: asyncio.AbstractEventLoop | None) -> Caller:
        raise NotImplementedError

    def _price(self) -> Price | None:
        """What its requests cost; None where that is unknown."""
        return None

    def _fingerprint(self, task: Task, brief: Brief) -> bytes | None:
        """All but the row that its answers depend on; None where answers are not kept across runs."""
        return None

    def _budget(self) -> tuple[Any, ...]:
        """Whose limits it uses: its own, unless something outside has limits that others use too."""
        return (self._own,)

    def _refuses(self, task: Task) -> str | None:
        """Why this provider cannot take a task, None where it can."""
        return None

    def _lane(self, task: Task, texts: Sequence[str], home: asyncio.AbstractEventLoop | None) -> LaneSpec:
        """What the engine needs to know of it for one run."""
        reason = self._refuses(task)
        if reason is not None:
            raise ConfigError(f"{self.name}: {reason}")
        brief = self._brief(task, texts)
        return LaneSpec(
            self.name,
            self._caller(brief, home),
            brief,
            self.limits,
            self._budget(),
            self._fingerprint(task, brief),
            self._price(),
        )


def fingerprint(task: Task, brief: Brief, **asked: Any) -> bytes:
    """Hash what an answer depends on beside the row: the words, the labels, and all that is ``asked`` of the model.

    The output cap is no part of it; it stands beside the answer.
    """
    labels = [(type(label).__qualname__, repr(label)) for label in brief.labels or ()]
    question = {"task": task.name, "system": brief.system, "schema": brief.schema, "labels": labels}
    whole = {"prompts": PROMPT_VERSION, **question, **asked}
    # Not orjson: it takes no lone surrogates, which labels and instructions may hold. It knows more types, though.
    written = json.dumps(whole, sort_keys=True, default=lambda value: orjson.dumps(value).decode())
    return blake2b(written.encode(), digest_size=16).digest()
