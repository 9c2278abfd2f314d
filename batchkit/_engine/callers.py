"""The ways to carry a question: over HTTP, to a function, to the embedded model."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import orjson

from batchkit._dialects.base import Dialect, canonical_url, merge_headers
from batchkit._dialects.errors import read_failure, read_request_id
from batchkit._dialects.hints import advise
from batchkit._dialects.quirks import changes
from batchkit._dialects.ratelimits import Allowances, read_allowances
from batchkit._engine.embedded import LabelModel
from batchkit._engine.registry import learn, quirks_of
from batchkit._engine.threads import in_thread, tamed
from batchkit._engine.watch import watch_of_loop
from batchkit.records import (
    Brief,
    Completion,
    Endpoint,
    Failure,
    Probabilities,
    Prompt,
    Question,
    Quirks,
    Scope,
    Structured,
)

__all__ = ["Caller", "EmbeddedCaller", "FunctionCaller", "FunctionFailed", "HttpCaller", "secrets_of"]


_SECRET = re.compile("auth|key|token|secret|cookie|password", re.IGNORECASE)
_SHORTEST_KEY = 8
_BLANK = "\0 where the row belongs \0"
"""Stands for the row in a request that is written down once for all rows."""


class Caller(Protocol):
    """Carries questions somewhere and brings back what came of each. Never raises for a question's sake."""

    batch: int
    """How many questions one call takes at most."""
    reply_tokens: int
    """The most tokens one reply may have, where tokens are counted at all."""
    told: Allowances | None
    """What the latest reply said about the provider's limits."""

    async def open(self) -> None:
        """Get ready; called once before the first question."""

    def set_cap(self, cap: int) -> None:
        """Let replies have no more than ``cap`` tokens from here on, if that can be asked for; see ``reply_tokens``."""

    async def carry(self, questions: Sequence[Question], timeout: float) -> Sequence[Completion | Failure]:
        """Bring back one result per question, in their order."""

    def close(self) -> None:
        """Give back what `open` took."""


class HttpCaller:
    """One question, one POST.

    Parameters
    ----------
    endpoint, dialect, brief
        Who is asked, in which format, about what.
    budget : hashable
        Callers of one budget share connections.
    proxy, ca_file : str, optional
        As for `open_channel`.
    """

    batch = 1
    told: Allowances | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        dialect: Dialect,
        brief: Brief,
        budget: Hashable,
        *,
        proxy: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._dialect = dialect
        self._brief = brief
        self._prepare(Quirks())
        self._url = dialect.url(endpoint)
        self._place = (canonical_url(self._url), endpoint.model)
        self._said = quirks_of(self._place)
        self._headers = merge_headers({"User-Agent": "batchkit"}, dialect.headers(endpoint))
        self._secrets = secrets_of(endpoint.headers, endpoint.key)

        # Imported here and not in `open`: aiohttp takes a while, and the loop should not wait for it.
        from batchkit._engine.transport import open_channel, trusting

        if ca_file is not None:
            trusting(ca_file)
        self._open_channel = partial(open_channel, budget, self._headers, proxy=proxy, ca_file=ca_file)

    async def open(self) -> None:
        self._channel = self._open_channel()

    def set_cap(self, cap: int) -> None:
        self._endpoint = replace(self._endpoint, max_output_tokens=cap)
        self._prepare(self._quirks)

    async def carry(self, questions: Sequence[Question], timeout: float) -> Sequence[Completion | Failure]:
        (question,) = questions
        quirks = quirks_of(self._place)
        if quirks is not self._quirks:
            self._prepare(quirks)
        answer = await self._channel.post(self._url, self._body(question), timeout)
        if isinstance(answer, Failure):
            self.told = None
            return (self._explained(answer, quirks),)
        self.told = read_allowances(answer.headers, time.time())
        result = self._read(*answer)
        if isinstance(result, Completion):
            return (result,)
        if self._quotes_a_secret(answer.body):
            # In the body and not in the message, which may have been cut in the middle of it.
            result = self._read(answer.status, answer.headers, self._redacted(answer.body))
        return (self._explained(result, quirks) if isinstance(result, Failure) else result,)

    def close(self) -> None:
        self._channel.close()

    def _prepare(self, quirks: Quirks) -> None:
        """Build what the requests have in common, all but the row even as bytes."""
        self._quirks = quirks
        self._prepared = self._dialect.prepare(self._brief, self._endpoint, quirks)
        self.reply_tokens = self._dialect.cap(self._prepared)
        form = _dumped(self._dialect.encode(self._prepared, Question(self._brief, _BLANK), self._endpoint))
        before, *after = form.split(orjson.dumps(_BLANK))
        self._form = (before, after[0]) if len(after) == 1 else None

    def _body(self, question: Question) -> bytes:
        if self._form is not None and not question.turns and question.room == 1:
            before, after = self._form
            return before + _dumped(question.row) + after
        return _dumped(self._dialect.encode(self._prepared, question, self._endpoint))

    def _read(self, status: int, headers: Mapping[str, str], body: bytes) -> Completion | Failure:
        if status != 200:
            return read_failure(status, headers, body, time.time())
        try:
            parsed = orjson.loads(body)
        except ValueError:
            return Failure("server", "HTTP 200, but the reply's body is not JSON", Scope.TRANSIENT, status)
        return self._dialect.decode(parsed, read_request_id(headers))

    def _quotes_a_secret(self, body: bytes) -> bool:
        return any(secret in body for secret in self._secrets)

    def _redacted(self, body: bytes) -> bytes:
        for secret in self._secrets:
            body = body.replace(secret, b"[key]")
        return body

    def _explained(self, failure: Failure, quirks: Quirks) -> Failure:
        """What a failure means here: perhaps the model wants to be asked otherwise; else with what to do next."""
        adapted = self._adapted(failure, quirks)
        return adapted if adapted is not None else advise(failure, self._endpoint, self._url)

    def _adapted(self, failure: Failure, quirks: Quirks) -> Failure | None:
        known = quirks_of(self._place)
        if known is quirks:
            better = self._dialect.adapt(failure, self._endpoint, quirks, self._brief)
            if better is None:
                return None
            learn(self._place, better)
            known = better
        elif self._dialect.adapt(failure, self._endpoint, quirks, self._brief) is None:
            return None
        # Otherwise another request learned it while this one was under way, and it may have been said.
        how = changes(self._said, known, self._endpoint)
        self._said = known
        return replace(failure, adapted=how, message=f"{failure.message} {how}".rstrip())


def secrets_of(named: Mapping[str, str], key: str | None = None) -> list[bytes]:
    """The key, and what may be one among headers; what is as short as ``ollama`` is only a placeholder."""
    sent = [value.rpartition(" ")[2] for name, value in named.items() if _SECRET.search(name)]
    secrets = [value.encode() for value in (key, *sent) if value is not None and len(value) >= _SHORTEST_KEY]
    return sorted(secrets, key=len, reverse=True)  # one may be a part of another


class FunctionFailed(Exception):
    """Raised by a function that knows better than its exception's type what went wrong."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class FunctionCaller:
    """Calls a Python function: async ones on a loop, sync ones in a thread of their own.

    Parameters
    ----------
    function : callable
        Takes a `Prompt`, or a list of them if ``batch`` is more than 1 or ``batched``.
    batched : bool
        Whether it takes and returns lists.
    batch : int
        The most prompts per call.
    home : asyncio loop or None
        The caller's own loop, for functions that must run there; None runs them on the engine's.
    """

    told: Allowances | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        batched: bool,
        batch: int,
        home: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.batch = batch
        self.reply_tokens = 0
        self._function = function
        self._batched = batched
        self._home = home
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004
        )

    async def open(self) -> None:
        """Nothing to get ready."""

    def set_cap(self, cap: int) -> None:
        """A function counts no tokens."""

    async def carry(self, questions: Sequence[Question], timeout: float) -> Sequence[Completion | Failure]:
        prompts = [Prompt.of(question) for question in questions]
        if not self._batched:
            return (await self._one(prompts[0], timeout),)
        return await self._many(prompts, timeout)

    def close(self) -> None:
        """Nothing to give back: a sync function still running is dropped with its thread."""

    async def _one(self, prompt: Prompt, timeout: float) -> Completion | Failure:
        try:
            return _completion(await self._call(prompt, timeout))
        except Exception as error:  # noqa: BLE001
            return _function_failure(error, timeout)

    async def _many(self, prompts: list[Prompt], timeout: float) -> Sequence[Completion | Failure]:
        try:
            answers = await self._call(list(prompts), timeout)
        except Exception as error:  # noqa: BLE001
            failure = _function_failure(error, timeout)
            if len(prompts) == 1 or failure.scope is Scope.TRANSIENT:
                return [failure] * len(prompts)
            # One row may have thrown away the others' answers: ask the two halves apart.
            middle = len(prompts) // 2
            return [*await self._many(prompts[:middle], timeout), *await self._many(prompts[middle:], timeout)]
        if isinstance(answers, (str, bytes, dict)) or not isinstance(answers, Iterable):
            text = f"the batched function returned {type(answers).__name__}, not a list with an answer per prompt"
            return [Failure("function", text)] * len(prompts)
        answers = list(answers)
        if len(answers) != len(prompts):
            text = f"the batched function returned {len(answers)} answers for {len(prompts)} prompts"
            return [Failure("function", text)] * len(prompts)
        return [_completion(answer) for answer in answers]

    async def _call(self, argument: Any, timeout: float) -> Any:
        watch = watch_of_loop()
        task = watch.begin(timeout)
        try:
            if self._home is not None:
                at_home = asyncio.run_coroutine_threadsafe(self._at_home(argument), self._home)
                return await asyncio.wrap_future(at_home)
            if self._is_async:
                return await self._function(argument)
            result = await in_thread(self._answer, argument)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as error:
            if watch.is_overdue(task):
                raise TimeoutError from error
            if task.cancelling():
                raise
            raise tamed(error) from error  # the function's own doing: nobody cancelled this row
        except (Exception, GeneratorExit):
            raise
        except BaseException as error:
            raise tamed(error) from error
        finally:
            watch.end(task)

    async def _at_home(self, argument: Any) -> Any:
        try:
            result = self._answer(argument)
            return await result if inspect.isawaitable(result) else result
        except SystemExit as error:
            raise tamed(error) from error

    def _answer(self, argument: Any) -> Any:
        result = self._function(argument)
        # A generator is the function's own code still to be run: here, not where its answers are read.
        return list(result) if inspect.isgenerator(result) else result


class EmbeddedCaller:
    """Asks the embedded model, many rows at a time, in a thread: it computes and does not wait."""

    batch = 256
    reply_tokens = 0
    told: Allowances | None = None

    def __init__(self, brief: Brief) -> None:
        self._brief = brief

    async def open(self) -> None:
        brief = self._brief
        self._model = await in_thread(LabelModel, brief.label_texts, brief.descriptions, brief.examples)

    def set_cap(self, cap: int) -> None:
        """It writes nothing."""

    async def carry(self, questions: Sequence[Question], timeout: float) -> Sequence[Completion | Failure]:
        rows = [question.row for question in questions]
        weights = await in_thread(self._model.probabilities, rows)
        return [Completion(Probabilities(row.tolist(), "embedded"), model="embedded") for row in weights]

    def close(self) -> None:
        """Nothing to give back."""


def _completion(answer: Any) -> Completion | Failure:
    if isinstance(answer, BaseException):
        return _function_failure(answer, None)
    return Completion(Structured(answer))


def _function_failure(error: BaseException, timeout: float | None) -> Failure:
    if isinstance(error, FunctionFailed):
        return error.failure
    if isinstance(error, TimeoutError):
        text = f"the function took longer than {timeout:g} s" if timeout is not None and not str(error) else str(error)
        return Failure("timeout", text or "the function timed out", Scope.TRANSIENT)
    if isinstance(error, ConnectionError):
        return Failure("connection", f"{type(error).__name__}: {error}", Scope.TRANSIENT)
    return Failure("function", f"{type(error).__name__}: {error}")


def _dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate somewhere in a cell
        return orjson.dumps(_clean(value))


def _clean(value: Any) -> Any:
    """Replace lone surrogates, which no JSON can carry."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(name): _clean(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(part) for part in value]
    return value
