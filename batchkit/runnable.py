"""`RunnableBatch`: code makes single calls, batches are what is sent. A true Runnable where langchain-core is there.

This module is imported at the first use of `batchkit.RunnableBatch`, and langchain-core only then.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import difflib
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from batchkit._engine import bridge
from batchkit._engine.collector import NOTHING, BatchReport, Collector, CollectorStats, Sent, wait_for
from batchkit._engine.threads import in_thread
from batchkit.errors import ConfigError, UnknownKeyword
from batchkit.providers import checks
from batchkit.settings import strict

if TYPE_CHECKING:

    class _Runnable:
        name: str | None

else:
    try:
        from langchain_core.runnables import Runnable as _Runnable
    except ImportError:

        class _Runnable:
            """Stands in where langchain-core is not installed."""


__all__ = ["RunnableBatch"]

_HAS_LANGCHAIN = hasattr(_Runnable, "ainvoke")

_CONFIG_KEYS = (
    "callbacks", "configurable", "max_concurrency", "metadata", "recursion_limit", "run_id", "run_name", "tags"
)  # fmt: skip

_Config = Mapping[str, Any]
_Pair = tuple[Any, dict[str, Any]]
"""An item and the config that goes with it."""


class RunnableBatch(_Runnable):
    """Merges single calls into batches for something that can process a list.

    A batch leaves when it is full, or ``max_batch_time`` seconds after its first call; the next one
    may leave while the last one runs. Every caller gets the result of its own item, or its error.
    Calls may come from any thread and any event loop, sync and async, at once.

    Where langchain-core is installed this is a true LangChain ``Runnable``: it pipes with ``|``,
    sits in ``RunnableParallel`` and ``RunnableBranch``, takes ``with_retry``, ``with_fallbacks`` and
    ``with_config``, and calls callbacks per item. Without it the same methods work by themselves.

    Parameters
    ----------
    bound : Runnable or any object with ``abatch``, ``batch``, ``ainvoke`` or ``invoke``, optional
        What processes the batches. A ``batch`` of its own is preferred, in a thread, to an
        ``abatch`` that would call ``ainvoke`` once per item.
    max_batch_size : int or "auto"
        Calls per batch at most. ``"auto"`` looks for the size beyond which an item gets no cheaper.
    max_batch_time : float or "auto"
        Seconds that the first call of a batch waits at most. ``"auto"`` goes by what batches take
        and by how fast calls arrive.
    wait_until_full : bool
        Never leave on the clock alone; `flush` sends the remainder. `batch` and `abatch` flush
        when no more of their items can join, since they would wait for ever.
    default_response : Any, optional
        What a caller gets whose item failed. Without it, the item's own exception is raised.
    batch_fn : callable, optional
        ``batch_fn(list) -> list``, in the order of its items, in place of ``bound``'s own method.
        Async, or sync in a thread. Exception objects in its list are failures.
    max_waiting : int, optional
        The most calls without an answer at once. A batch of that many counts as full.
    when_full : {"wait", "raise"}
        Whether further calls wait then, first come first served, or are refused with `BatchkitError`.
    on_batch : callable, optional
        Gets a report of each batch that has ended: ``size``, ``waited``, ``seconds``, ``failed``,
        ``error``, and ``started``, when it left in seconds since the epoch.
        It is called where the batch ran, so it must be quick; `batchkit.observe` hears of batches in a thread.
    loop : {"caller", "engine"}
        Where async code of ``bound`` or ``batch_fn`` runs. ``"caller"``: on the loop of those who
        await, so that what belongs to that loop goes on working; for sync calls, and where calls of
        several loops meet, on batchkit's own. ``"engine"``: always on batchkit's own, which outlives
        every cell and every ``asyncio.run``. See Notes.
    name : str, optional
        How traces and events call it.

    Raises
    ------
    ConfigError
        There is nothing that could process a batch, or a number is out of range.

    Notes
    -----
    The async clients of most vendors, and so LangChain's chat models, keep connections that belong
    to the event loop they were first used on, and fail with ``RuntimeError: ... is bound to a
    different event loop`` on another. Where one is called both with ``await`` and without, for
    instance in cells of one notebook, give ``loop="engine"``, and do not await the client itself
    beside it: LangChain's chat models of one address share their connections.

    Examples
    --------
    >>> import batchkit as bk
    >>> with bk.RunnableBatch(batch_fn=lambda texts: [len(text) for text in texts], max_batch_size=2) as lengths:
    ...     lengths.batch(["a", "bb", "ccc"])
    [1, 2, 3]
    >>> lengths.stats.batches
    2
    """

    @strict
    def __init__(
        self,
        bound: Any = None,
        *,
        max_batch_size: int | Literal["auto"] = 64,
        max_batch_time: float | Literal["auto"] = 0.1,
        wait_until_full: bool = False,
        default_response: Any = NOTHING,
        batch_fn: Callable[[list[Any]], Any] | None = None,
        max_waiting: int | None = None,
        when_full: Literal["wait", "raise"] = "wait",
        on_batch: Callable[[BatchReport], object] | None = None,
        loop: Literal["caller", "engine"] = "caller",
        name: str | None = None,
    ) -> None:
        size, most = _checked(max_batch_size, max_batch_time, max_waiting, when_full)
        if loop not in ("caller", "engine"):
            raise ConfigError(f"RunnableBatch: loop={loop!r} is neither 'caller' nor 'engine'.")
        for setting, function in (("batch_fn", batch_fn), ("on_batch", on_batch)):
            if function is not None and not callable(function):
                raise ConfigError(f"RunnableBatch: {setting}={function!r} must be a function.")
        self.bound = bound
        self.name = name
        self._process = _processor(bound, batch_fn)
        if loop == "caller":
            self._process = _explaining(self._process)
        self._wait_until_full = wait_until_full
        self._collector = Collector(
            self._process,
            max_batch_size=size,
            max_batch_time=max_batch_time,
            wait_until_full=wait_until_full,
            default_response=default_response,
            max_waiting=most,
            when_full=when_full,
            on_batch=on_batch,
            loop=loop,
            name=name or "RunnableBatch",
        )

    # ---- single calls -----------------------------------------------------------------------------

    def invoke(self, input: Any, config: _Config | None = None, **kwargs: Any) -> Any:
        """Hand in one input and wait for its output, in any thread, inside a running loop too.

        Raises
        ------
        UnknownKeyword
            ``config`` has a key that LangChain does not know, or there are other keywords.
        BatchkitError
            The collector is closed, full with ``when_full="raise"``, or ``batch_fn`` did not return a result per item.
        """
        _refuse("invoke", config, kwargs)
        if not _HAS_LANGCHAIN:
            return self._collector.call((input, dict(config or {})))
        run, child = self._begin_run(input, config)
        try:
            output = self._collector.call((input, child))
        except BaseException as error:
            run.on_chain_error(error)
            raise
        run.on_chain_end(output)
        return output

    async def ainvoke(self, input: Any, config: _Config | None = None, **kwargs: Any) -> Any:
        """Hand in one input and wait for its output; for what it raises see `invoke`."""
        _refuse("ainvoke", config, kwargs)
        return await self._ainvoke(input, config, self._collector.submit)

    async def _ainvoke(self, input: Any, config: _Config | None, submit: Callable[[_Pair], Awaitable[Any]]) -> Any:
        if not _HAS_LANGCHAIN:
            return await submit((input, dict(config or {})))
        from langchain_core.runnables.config import ensure_config, get_async_callback_manager_for_config, patch_config

        full = ensure_config(config)
        manager = get_async_callback_manager_for_config(full)
        run_id = full.pop("run_id", None)
        run = await manager.on_chain_start(None, input, name=full.get("run_name") or self.get_name(), run_id=run_id)
        try:
            output = await submit((input, patch_config(full, callbacks=run.get_child())))
        except BaseException as error:
            await run.on_chain_error(error)
            raise
        await run.on_chain_end(output)
        return output

    # ---- several calls ----------------------------------------------------------------------------

    def batch(
        self,
        inputs: Sequence[Any],
        config: _Config | Sequence[_Config] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Hand in several inputs as single calls and wait for all outputs, in the order of the inputs.

        Parameters
        ----------
        inputs : sequence
        config : dict or list of dict, optional
            A LangChain config, or one per input. ``max_concurrency`` limits how many of the inputs
            are under way at once.
        return_exceptions : bool
            Return exceptions in place of outputs. Otherwise the first in the order of the inputs
            is raised, once all have ended.

        Returns
        -------
        list
        """
        _refuse("batch", None, kwargs)
        configs = _configs("batch", config, len(inputs))
        window = _window(configs, len(inputs))
        outcomes: list[Any] = [None] * len(inputs)
        under_way: dict[concurrent.futures.Future[Any], tuple[int, Any]] = {}
        try:
            for position, (item, one) in enumerate(zip(inputs, configs, strict=True)):
                if len(under_way) >= window:
                    self._flush_if_stuck()
                    self._gather(under_way, outcomes, concurrent.futures.FIRST_COMPLETED)
                run, child = self._begin_run(item, one) if _HAS_LANGCHAIN else (None, dict(one))
                try:
                    under_way[self._collector.start((item, child))] = (position, run)
                except Exception as error:  # noqa: BLE001 - refused or closed: this item's error
                    outcomes[position] = _finish(run, error)
            self._flush_if_stuck()
            self._gather(under_way, outcomes, concurrent.futures.ALL_COMPLETED)
        except BaseException as error:
            for future, (_, run) in under_way.items():
                if future.cancel() and run is not None:
                    run.on_chain_error(error)
            raise
        return _unpacked(outcomes, return_exceptions)

    async def abatch(
        self,
        inputs: Sequence[Any],
        config: _Config | Sequence[_Config] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[Any]:
        """Hand in several inputs as single calls and wait for all outputs; see `batch`."""
        _refuse("abatch", None, kwargs)
        configs = _configs("abatch", config, len(inputs))
        slots = asyncio.Semaphore(_window(configs, len(inputs)))
        submit = _SubmitAll(self._collector) if self._wait_until_full else self._collector.submit

        async def one(item: Any, own: _Config) -> Any:
            async with slots:
                if isinstance(submit, _SubmitAll):
                    submit.expected += 1
                try:
                    return await self._ainvoke(item, own, submit)
                except Exception as error:  # noqa: BLE001
                    return _Raised(error)
                finally:
                    if isinstance(submit, _SubmitAll):
                        submit.ended()

        return _unpacked(
            await asyncio.gather(*[one(item, own) for item, own in zip(inputs, configs, strict=True)]),
            return_exceptions,
        )

    # ---- around the calls -------------------------------------------------------------------------

    @property
    def stats(self) -> CollectorStats:
        """Calls and what came of them, batch sizes in the order of leaving, and p50, p90 and p99 of times."""
        return self._collector.stats()

    def flush(self) -> Sent:
        """Let what waits leave now, full or not. May be awaited, to wait until that is answered."""
        return self._collector.flush()

    async def aclose(self) -> None:
        """Take no more calls, let what waits leave, and wait until all is answered."""
        await self._collector.aclose()

    def close(self) -> None:
        """The same as `aclose`, from sync code."""
        self._collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        what = "batch_fn" if self.bound is None else type(self.bound).__name__
        return f"RunnableBatch({what}, {self.stats.calls} calls)"

    @property
    def InputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What the bound object takes, as far as it says so."""
        return getattr(self.bound, "InputType", Any)

    @property
    def OutputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What the bound object returns, as far as it says so."""
        return getattr(self.bound, "OutputType", Any)

    def _begin_run(self, item: Any, config: _Config | None) -> tuple[Any, Any]:
        """Tell the callbacks of one item; returns its run, and the config for what it becomes part of."""
        from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config, patch_config

        full = ensure_config(config)
        manager = get_callback_manager_for_config(full)
        run_id = full.pop("run_id", None)
        run = manager.on_chain_start(None, item, name=full.get("run_name") or self.get_name(), run_id=run_id)
        return run, patch_config(full, callbacks=run.get_child())

    def _flush_if_stuck(self) -> None:
        if self._wait_until_full:
            self._collector.flush()

    def _gather(
        self, under_way: dict[concurrent.futures.Future[Any], tuple[int, Any]], outcomes: list[Any], when: str
    ) -> None:
        """Wait for some calls, and put down what came of them."""
        done = list(under_way)
        if when == concurrent.futures.FIRST_COMPLETED:
            # In turns, since not every system wakes a thread for Ctrl-C.
            while not (done := list(concurrent.futures.wait(under_way, timeout=0.2, return_when=when).done)):
                pass
        for future in done:
            position, run = under_way[future]
            try:
                outcome = wait_for(future)
            except Exception as error:  # noqa: BLE001
                outcomes[position] = _finish(run, error)
            else:
                outcomes[position] = outcome
                if run is not None:
                    run.on_chain_end(outcome)
            del under_way[future]

    if TYPE_CHECKING:

        def get_name(self) -> str:
            """How traces call it."""


# ---- what is checked -------------------------------------------------------------------------------


def _checked(size: Any, seconds: Any, most: Any, when_full: Any) -> tuple[Any, int | None]:
    where = "RunnableBatch"
    if size != "auto":
        size = checks.whole(where, "max_batch_size", size, 1)
    if seconds != "auto" and not (checks.is_number(seconds) and seconds >= 0):
        raise ConfigError(f"{where}: max_batch_time={seconds!r} must be seconds, 0 or more, or 'auto'.")
    if when_full not in ("wait", "raise"):
        raise ConfigError(f"{where}: when_full={when_full!r} is neither 'wait' nor 'raise'.")
    if most is not None:
        most = checks.whole(where, "max_waiting", most, 1)
    return size, most


def _refuse(method: str, config: Any, kwargs: Mapping[str, Any]) -> None:
    for name in kwargs:
        raise UnknownKeyword(
            f"RunnableBatch.{method} has no keyword {name!r}: calls with different ones could not share a batch. "
            "Bind it to what is inside, for example RunnableBatch(model.bind(...))."
        )
    if config is None:
        return
    if not isinstance(config, Mapping):
        raise ConfigError(f"RunnableBatch.{method}: config={config!r} is no dict, such as {{'max_concurrency': 4}}.")
    for key in config:
        if key not in _CONFIG_KEYS:
            raise UnknownKeyword.at(f"RunnableBatch.{method}: config", str(key), _CONFIG_KEYS)
    # Bindings and chains of LangChain put keys they do not know among the configurable ones, and go on.
    for key in config.get("configurable") or ():
        if _is_mistyped(str(key)):
            raise UnknownKeyword.at(f"RunnableBatch.{method}: config", str(key), _CONFIG_KEYS)


@functools.lru_cache(maxsize=256)
def _is_mistyped(key: str) -> bool:
    return key not in _CONFIG_KEYS and bool(difflib.get_close_matches(key, _CONFIG_KEYS, n=1, cutoff=0.9))


def _configs(method: str, config: Any, count: int) -> list[_Config]:
    """A config per input."""
    if config is None or isinstance(config, Mapping):
        _refuse(method, config, {})
        configs = [config or {}] * count
        if config and "run_id" in config and count > 1:  # a run has one id: the first input's keeps it
            configs[1:] = [{key: value for key, value in config.items() if key != "run_id"}] * (count - 1)
        return configs
    configs = list(config)
    if len(configs) != count:
        raise ConfigError(f"RunnableBatch.{method}: {len(configs)} configs for {count} inputs; give one for each.")
    for one in configs:
        _refuse(method, one, {})
    return configs


def _window(configs: Sequence[_Config], count: int) -> int:
    """How many inputs may be under way at once."""
    limits = [one["max_concurrency"] for one in configs if one.get("max_concurrency") is not None]
    return min(
        [checks.whole("RunnableBatch: config", "max_concurrency", limit, 1) for limit in limits] or [max(1, count)]
    )


# ---- what came of each -----------------------------------------------------------------------------


class _SubmitAll:
    """Submits a call's items, and flushes when all that may be under way wait: no other of them can fill the batch."""

    def __init__(self, collector: Collector) -> None:
        self.expected = 0
        """Items that are under way or about to be."""
        self._collector = collector
        self._waiting = 0

    async def __call__(self, pair: _Pair) -> Any:
        self._waiting += 1
        # Soon, and not now: the item itself is handed in below, and those that start in this turn count as well.
        asyncio.get_running_loop().call_soon(self._look)
        try:
            return await self._collector.submit(pair)
        finally:
            self._waiting -= 1

    def ended(self) -> None:
        """Note that an item is done with: perhaps the others wait for nobody else now."""
        self.expected -= 1
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if 0 < self._waiting == self.expected:
            self._collector.flush()


class _Raised:
    """An error that an input met, told from an exception that is its output."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _finish(run: Any, error: Exception) -> _Raised:
    if run is not None:
        run.on_chain_error(error)
    return _Raised(error)


def _unpacked(outcomes: list[Any], return_exceptions: bool) -> list[Any]:
    raised = [outcome.error for outcome in outcomes if type(outcome) is _Raised]
    if raised and not return_exceptions:
        raise raised[0]
    return [outcome.error if type(outcome) is _Raised else outcome for outcome in outcomes]


# ---- who processes a batch --------------------------------------------------------------------------


def _processor(bound: Any, batch_fn: Callable[[list[Any]], Any] | None) -> Callable[[list[_Pair]], Any]:
    """The function that the collector calls with pairs of item and config."""
    if batch_fn is not None:
        return _by_function(batch_fn)
    if bound is None:
        raise ConfigError("RunnableBatch needs something that processes batches: a Runnable, or batch_fn=.")
    if _overrides(bound, "batch") and (not _overrides(bound, "abatch") or _holds_plain_batch(bound)):
        return _by_batch(bound)
    if callable(getattr(bound, "abatch", None)):
        return _by_abatch(bound)
    if callable(getattr(bound, "ainvoke", None)) or callable(getattr(bound, "invoke", None)):
        return _one_by_one(bound)
    raise ConfigError(
        f"RunnableBatch: {bound!r} has none of abatch, batch, ainvoke and invoke. "
        "For a function that takes a list of items write RunnableBatch(batch_fn=...)."
    )


def _explaining(process: Callable[[list[_Pair]], Any]) -> Callable[[list[_Pair]], Any]:
    """The same, with a word on what to do to errors that say that a client belongs to another loop."""

    async def explained(pairs: list[_Pair]) -> Any:
        try:
            results = await process(pairs)
        except RuntimeError as error:
            _explain(error)
            raise
        for result in results if isinstance(results, list) else ():
            if isinstance(result, Exception):
                _explain(result)
        return results

    return explained


def _explain(error: Exception) -> None:
    if bridge.is_of_another_loop(error) and _OTHER_LOOP not in getattr(error, "__notes__", ()):
        error.add_note(_OTHER_LOOP)


_OTHER_LOOP = (
    "It was used on another event loop before: calls with await run on the caller's, calls without on batchkit's. "
    'RunnableBatch(..., loop="engine") runs all of them on one.'
)


def _overrides(bound: Any, method: str) -> bool:
    """Whether an object has a method of its own, and not LangChain's default."""
    own = getattr(type(bound), method, None) or getattr(bound, method, None)
    return callable(own) and own is not getattr(_Runnable, method, None)


def _holds_plain_batch(bound: Any) -> bool:
    """Whether something inside a chain or binding has only a sync ``batch``, which their ``abatch`` would not call."""
    if not isinstance(bound, _Runnable):
        return False
    parts = [*getattr(bound, "steps", ()), getattr(bound, "bound", None), getattr(bound, "runnable", None)]
    parts = [part for part in parts if isinstance(part, _Runnable) and not isinstance(part, RunnableBatch)]
    return any(
        (_overrides(part, "batch") and not _overrides(part, "abatch")) or _holds_plain_batch(part) for part in parts
    )


def _by_function(batch_fn: Callable[[list[Any]], Any]) -> Callable[[list[_Pair]], Any]:
    is_async = inspect.iscoroutinefunction(batch_fn) or inspect.iscoroutinefunction(getattr(batch_fn, "__call__", None))  # noqa: B004

    async def process(pairs: list[_Pair]) -> Any:
        items = [item for item, _ in pairs]
        result = batch_fn(items) if is_async else await in_thread(batch_fn, items)
        return await result if inspect.isawaitable(result) else result

    return process


def _by_batch(bound: Any) -> Callable[[list[_Pair]], Any]:
    takes = _accepted(bound, bound.batch)

    async def process(pairs: list[_Pair]) -> Any:
        items, configs = _unzipped(pairs)
        result = await in_thread(lambda: bound.batch(items, **takes(configs)))
        return await result if inspect.isawaitable(result) else result

    return process


def _by_abatch(bound: Any) -> Callable[[list[_Pair]], Any]:
    takes = _accepted(bound, bound.abatch)

    async def process(pairs: list[_Pair]) -> Any:
        items, configs = _unzipped(pairs)
        return await bound.abatch(items, **takes(configs))

    return process


def _one_by_one(bound: Any) -> Callable[[list[_Pair]], Any]:
    """For an object that is no Runnable and knows no lists."""
    is_async = callable(getattr(bound, "ainvoke", None))

    async def process(pairs: list[_Pair]) -> Any:
        items, _ = _unzipped(pairs)
        calls = [bound.ainvoke(item) if is_async else in_thread(bound.invoke, item) for item in items]
        return await asyncio.gather(*calls, return_exceptions=True)

    return process


def _accepted(bound: Any, method: Callable[..., Any]) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """What of a batch's settings a method can be given."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return lambda configs: {}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    takes_exceptions = takes_all or "return_exceptions" in parameters
    takes_config = "config" in parameters or (takes_all and _HAS_LANGCHAIN and isinstance(bound, _Runnable))

    def settings(configs: list[dict[str, Any]]) -> dict[str, Any]:
        given: dict[str, Any] = {"config": configs} if takes_config else {}
        return {**given, "return_exceptions": True} if takes_exceptions else given

    return settings


def _unzipped(pairs: list[_Pair]) -> tuple[list[Any], list[dict[str, Any]]]:
    """Items and their configs; where callers want few at once, that holds for the batch they are in."""
    configs = [config for _, config in pairs]
    limits = [config["max_concurrency"] for config in configs if config.get("max_concurrency")]
    if limits:
        configs = [{**config, "max_concurrency": min(limits)} for config in configs]
    return [item for item, _ in pairs], configs
