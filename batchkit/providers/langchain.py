"""LangChain's Runnables as providers, and providers as Runnables. langchain-core is imported when either is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from batchkit._dialects.errors import read_failure
from batchkit._engine import bridge
from batchkit._engine.callers import FunctionFailed, secrets_of
from batchkit._engine.execute import Execution
from batchkit._engine.ledger import ANSWERED, Ledger
from batchkit._engine.plan import Plan
from batchkit._logic.itinerary import Seat, seated
from batchkit._logic.labels import LabelSet
from batchkit._logic.tasks import Classify, Task
from batchkit.errors import BatchkitError, ConfigError, InputError
from batchkit.providers.base import Provider, fingerprint
from batchkit.providers.local import Embedded, FunctionProvider
from batchkit.records import (
    ERROR_KINDS,
    Answer,
    Brief,
    Complaint,
    Failure,
    Prompt,
    Reply,
    Scope,
    Structured,
    Text,
)
from batchkit.settings import strict

__all__ = ["LangChain", "as_runnable"]

_CAUSES = 5
"""So many exceptions are looked at, each the cause of the one before."""


class LangChain(FunctionProvider):
    """A LangChain Runnable that answers: a chat model, a chain, an agent.

    It gets a system message with the task and a human message with the row's text. If it begins
    with a prompt template of one variable, it gets the row's text as that variable instead, and
    the template says what the task is. Needs ``pip install "batchkit-notebook[langchain]"``.

    Parameters
    ----------
    runnable : Runnable
        Asked with ``ainvoke`` on the engine's loop, or with ``invoke`` in threads if it has no
        ``ainvoke`` of its own. A message's text, a dict, a pydantic object or a label is an answer.
    name : str, optional
        How it is called in columns and tables. Default: the runnable's own name.
    max_concurrency : int
        Calls at once.
    to_input : callable, optional
        Makes the runnable's input of a `Prompt`, the row's text with ``.system``, ``.labels``
        and ``.schema``. Needed for templates of several variables.
    version : str, optional
        Lets its answers be kept in the journal, under the runnable's class and this text: change
        it whenever the runnable answers otherwise, and give two runnables of one class two of
        them. Without it answers are not kept.
    timeout, deadline, max_retries, rpm, instructions
        As for `OpenAI`. What a vendor's client raises for an HTTP error means what it means
        elsewhere here: a rate limit pauses the provider for as long as it was asked to, a server
        error is tried again, a wrong key stops the provider. Lost connections and time-outs are
        tried again; any other exception is the row's error, of kind ``function``. Switch the
        client's own retries off (``ChatOpenAI(..., max_retries=0)``): they know no limits.

    Raises
    ------
    ConfigError
        It is no Runnable, its template has no variable or several, or langchain-core is missing.

    Notes
    -----
    A client's connections belong to the event loop on which they were opened. One that was awaited
    in a cell before is of no use on batchkit's loop: the first calls fail as ``connection`` and are
    tried again. The other way round, ``await client.ainvoke(...)`` in a cell after a run may raise
    ``RuntimeError: ... is bound to a different event loop`` once. Where that is in the way, give
    the model a client of its own (``ChatOpenAI(..., http_async_client=...)``), or ask it by
    ``provider.as_runnable()``.

    Examples
    --------
    >>> import batchkit as bk                                                       # doctest: +SKIP
    >>> from langchain_openai import ChatOpenAI                                     # doctest: +SKIP
    >>> model = bk.LangChain(ChatOpenAI(model="gpt-6-luna"), max_concurrency=16)    # doctest: +SKIP
    >>> df.llm.classify("text", ["billing", "delivery"], route=model)               # doctest: +SKIP
    """

    @strict
    def __init__(
        self,
        runnable: Any,
        *,
        name: str | None = None,
        max_concurrency: int = 8,
        to_input: Callable[[Prompt], Any] | None = None,
        rpm: float | None = None,
        timeout: float = 60.0,
        deadline: float = 600.0,
        max_retries: int = 5,
        instructions: str | None = None,
        version: str | None = None,
    ) -> None:
        runnables = _langchain("bk.LangChain").Runnable
        if not isinstance(runnable, runnables):
            raise ConfigError(f"LangChain needs a Runnable; got {runnable!r}. For a function use bk.FunctionProvider.")
        if to_input is not None and not callable(to_input):
            raise ConfigError(f"LangChain: to_input={to_input!r} must be a function of a Prompt.")
        make = to_input or _usual_input(runnable)
        own_async = type(runnable).ainvoke is not runnables.ainvoke
        super().__init__(
            _asking(runnable, make) if own_async else _asking_in_thread(runnable, make),
            name=runnable.get_name() if name is None else name,
            max_concurrency=max_concurrency,
            rpm=rpm,
            timeout=timeout,
            deadline=deadline,
            max_retries=max_retries,
            instructions=instructions,
            version=version,
        )
        self._runnable, self._make_input = runnable, make
        self._kind = f"{type(runnable).__module__}.{type(runnable).__qualname__}"

    def __repr__(self) -> str:
        return f"LangChain({self.name!r})"

    def _collected(self, collect: Callable[..., Any]) -> Provider | None:
        other = self._copied()
        other._function = _asking(collect(self._runnable), self._make_input)
        return other

    def _fingerprint(self, task: Task, brief: Brief) -> bytes | None:
        return None if self._version is None else fingerprint(task, brief, runnable=self._kind, version=self._version)


def _langchain(what: str) -> Any:
    try:
        import langchain_core.runnables as runnables
    except ImportError:
        raise ConfigError(
            f'{what} needs langchain-core, which is not installed: pip install "batchkit-notebook[langchain]"'
        ) from None
    return runnables


# ---- a Runnable as a provider ------------------------------------------------------------------------


def _asking(runnable: Any, make: Callable[[Prompt], Any]) -> Callable[[Prompt], Any]:
    async def ask(prompt: Prompt) -> Any:
        try:
            return _answer(await runnable.ainvoke(make(prompt)))
        except Exception as error:
            raise _known(error) from error

    return ask


def _asking_in_thread(runnable: Any, make: Callable[[Prompt], Any]) -> Callable[[Prompt], Any]:
    def ask(prompt: Prompt) -> Any:
        try:
            return _answer(runnable.invoke(make(prompt)))
        except Exception as error:
            raise _known(error) from error

    return ask


def _usual_input(runnable: Any) -> Callable[[Prompt], Any]:
    """How a Runnable is asked that nobody said anything about."""
    from langchain_core.prompts import BasePromptTemplate

    first = _first(runnable)
    if not isinstance(first, BasePromptTemplate):
        return _messages
    variables = list(first.input_variables)
    if len(variables) != 1:
        raise ConfigError(
            f"LangChain: the prompt template has {len(variables)} variables ({', '.join(variables) or 'none'}), and "
            "only one can be the row's text. Say how its input is made: "
            "to_input=lambda prompt: {'text': str(prompt), ...}."
        )
    (variable,) = variables
    places = [getattr(part, "variable_name", None) for part in getattr(first, "messages", ())]
    if variable in places:  # a place for messages, not for text
        return lambda prompt: {variable: _messages(prompt)}
    return lambda prompt: {variable: str(prompt)}


def _first(runnable: Any) -> Any:
    """What gets a Runnable's input: the first of a chain, what a binding binds."""
    from langchain_core.runnables import RunnableSequence
    from langchain_core.runnables.base import RunnableBindingBase

    while isinstance(runnable, (RunnableSequence, RunnableBindingBase)):
        runnable = runnable.first if isinstance(runnable, RunnableSequence) else runnable.bound
    return runnable


def _messages(prompt: Prompt) -> list[Any]:
    from langchain_core.messages import HumanMessage, SystemMessage

    messages: list[Any] = [SystemMessage(prompt.system)] if prompt.system else []
    messages.append(HumanMessage(str(prompt)))
    if prompt.complaint:
        messages.append(HumanMessage(prompt.complaint))
    return messages


def _answer(output: Any) -> Any:
    """What a Runnable returned, as a function would have."""
    from langchain_core.messages import BaseMessage
    from pydantic import BaseModel

    if isinstance(output, BaseMessage):
        text: Any = output.text
        return str(text) if isinstance(text, str) else text()  # a method in langchain-core before 1.0
    return output.model_dump() if isinstance(output, BaseModel) else output


def _known(error: Exception) -> Exception:
    """The error of a vendor's client as the engine knows it: each has a tree of its own, and none is imported."""
    chain = _chain(error)
    for one in chain:
        failure = _http_failure(one)
        if failure is not None:
            return FunctionFailed(failure)
    kind = type(error).__name__
    text = f"{kind}: {error}"
    for one in chain:
        text = _redacted(text, one)
    if bridge.is_of_another_loop(error):
        # The client drops such a connection, and its next try opens one on the engine's loop.
        said = "the client was awaited on another event loop before, and its connection is of no use on batchkit's."
        return FunctionFailed(Failure("connection", f"{kind}: {said}", Scope.TRANSIENT))
    if any("Timeout" in type(one).__name__ for one in chain):
        return TimeoutError(text)
    if "Connect" in kind:
        # What lies below the vendor's client knows whether there was a connection at all.
        unreached = any(type(one).__name__ == "ConnectError" for one in chain)
        return FunctionFailed(Failure("connection", text, Scope.TRANSIENT, unreached=unreached))
    return error


def _chain(error: BaseException | None) -> list[BaseException]:
    """An exception and its causes: LangChain wraps a client's, which wraps that of an HTTP library."""
    chain: list[BaseException] = []
    while error is not None and len(chain) < _CAUSES:
        chain.append(error)
        error = error.__cause__
    return chain


def _http_failure(error: BaseException) -> Failure | None:
    """What the HTTP error means that an exception brings along; None where there is none."""
    response = getattr(error, "response", None)
    told = getattr(error, "status_code", None) or (None if response is None else getattr(error, "code", None))
    status: Any = told if _is_status(told) else getattr(response, "status_code", None)
    if not _is_status(status):
        return None
    body = _redacted(_body(error), error).encode("utf-8", "replace")
    failure = read_failure(status, _headers(error), body, time.time())
    if failure.scope is Scope.PROVIDER and status != told:
        # Of an HTTP library and no vendor's client: perhaps a tool's, at another address for each row.
        return replace(failure, scope=Scope.ROW)
    return failure


def _is_status(value: Any) -> bool:
    return isinstance(value, int) and 400 <= value <= 599


def _body(error: BaseException) -> str:
    try:
        content = error.response.content  # type: ignore[attr-defined]
        if content and isinstance(content, bytes):
            return content.decode("utf-8", "replace")
    except Exception:  # noqa: BLE001 - no response, or one that was not read to its end
        pass
    body = getattr(error, "body", None)
    if isinstance(body, (dict, list)):
        return orjson.dumps(body, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    return body if isinstance(body, str) and body else str(error)


def _headers(error: BaseException) -> dict[str, str]:
    found = getattr(getattr(error, "response", None), "headers", None) or getattr(error, "headers", None) or {}
    try:
        return {str(name).lower(): str(value) for name, value in found.items()}
    except AttributeError:
        return {}


def _redacted(text: str, error: BaseException) -> str:
    """A text without the key that the client sent: vendors repeat it, and some put it into the address."""
    try:
        request = getattr(error, "request", None) or error.response.request  # type: ignore[attr-defined]
        named = {**dict(request.headers), **dict(parse_qsl(urlsplit(str(request.url)).query))}
    except Exception:  # noqa: BLE001 - nothing is known of the request, or there is none
        return text
    for secret in secrets_of(named):
        text = text.replace(secret.decode(), "[key]")
    return text


# ---- a provider as a Runnable ------------------------------------------------------------------------


def as_runnable(provider: Provider, labels: Any = None) -> Any:
    """Make a Runnable that asks a provider; see `Provider.as_runnable`."""
    runnables = _langchain("as_runnable()")
    if labels is None and isinstance(provider, Embedded):
        raise ConfigError(f"{provider.name} can only choose among labels: as_runnable(labels=[...]).")
    classify = None if labels is None else Classify(LabelSet.of(labels))

    async def ask(given: Any) -> Any:
        loop = asyncio.get_running_loop()
        execution, ledger = _prepared(provider, classify, given, loop if provider.needs_home_loop else None)
        if loop is bridge.loop():
            await execution.run()
        else:
            await asyncio.wrap_future(bridge.submit(execution.run()))
        return _outcome(provider, ledger)

    def ask_and_wait(given: Any) -> Any:
        with bridge.home_loop(provider.needs_home_loop) as home:
            execution, ledger = _prepared(provider, classify, given, home)
            future = bridge.submit(execution.run())
            try:
                bridge.wait(future, lambda: None, home)
            except KeyboardInterrupt:
                future.cancel()
                raise
        return _outcome(provider, ledger)

    return runnables.RunnableLambda(ask_and_wait, afunc=ask, name=provider.name)


def _prepared(
    provider: Provider, classify: Task | None, given: Any, home: asyncio.AbstractEventLoop | None
) -> tuple[Execution, Ledger]:
    system, text = _read(given)
    if classify is not None and system:
        raise InputError("as_runnable(labels=...) takes a text or a human message: it says itself what the task is.")
    task = classify or _FreeReply(system)
    plan = Plan(task, [text], [0], [1], (seated(Seat(frozenset({0}))),), (provider._lane(task, [text], home),))
    ledger = Ledger(plan)
    ledger.announce()
    return Execution(plan, ledger, rng=Random()), ledger


def _outcome(provider: Provider, ledger: Ledger) -> Any:
    if ledger.state[0] == ANSWERED:
        return ledger.values[0]
    raise BatchkitError(f"{provider.name}: {ERROR_KINDS[ledger.kind[0]]}: {ledger.messages[0]}")


def _read(given: Any) -> tuple[str, str]:
    """The system text and the row's text of what a Runnable is called with."""
    from langchain_core.messages import BaseMessage, convert_to_messages

    if isinstance(given, str):
        return "", given
    if hasattr(given, "to_messages"):
        given = given.to_messages()
    parts: Sequence[Any] = [given] if isinstance(given, BaseMessage) else given
    if isinstance(parts, Mapping) or not isinstance(parts, Iterable):
        raise InputError(f"a provider as a Runnable takes a text or messages, not {type(given).__name__}.")
    messages = convert_to_messages(parts)
    rest = [message for message in messages if message.type != "system"]
    if len(rest) != 1 or rest[0].type != "human":
        kinds = ", ".join(message.type for message in messages) or "none"
        raise InputError(f"a provider as a Runnable takes system messages and one human message; got {kinds}.")
    system = "\n\n".join(str(_answer(message)) for message in messages if message.type == "system")
    return system, str(_answer(rest[0]))


@dataclass(frozen=True, slots=True)
class _FreeReply:
    """Whatever is replied is the answer."""

    system: str
    name: str = "reply"

    def brief(self, vendor_instructions: str | None = None) -> Brief:
        """Everything about the question but the row, for one provider."""
        return Brief("\n\n".join(filter(None, (self.system, vendor_instructions))), max_output_tokens=4096)

    def check(self, reply: Reply) -> Answer | Complaint:
        """Take what was said."""
        match reply:
            case Text(text):
                return Answer(text)
            case Structured(value):
                return Answer(value)
            case _:
                return Complaint("This is no text.")

    def reply_bytes(self) -> float:
        """How long a usual reply is, roughly."""
        return 1000.0

    def dump(self, value: Any) -> Any:
        """Write an answer's value as JSON can hold it."""
        return value

    def load(self, written: Any) -> Any:
        """Read back what `dump` wrote."""
        return written
