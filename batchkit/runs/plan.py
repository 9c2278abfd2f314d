"""What a run would come to, before it is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from batchkit._engine.memory import Memory
from batchkit._logic.itinerary import Ask, advance
from batchkit._logic.pricing import Price, cost, dollars, learn
from batchkit._logic.pricing import estimate_tokens as tokens_of
from batchkit._logic.stats import quantile
from batchkit.providers import resolve
from batchkit.records import Usage
from batchkit.routes import compile_route
from batchkit.runs.run import Adjustment, Run, ViewMaker, carry_out, open_journal, planned
from batchkit.runs.terms import Asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchkit._engine.plan import LaneSpec

__all__ = ["Plan"]


class Plan:
    """A run decided, not begun: how many requests, tokens and USD it would take. Sends nothing.

    Tokens are estimated from the length of the texts, four bytes each; with a pilot from what the
    providers counted for it. What is not known stays unknown: USD without a price, seconds
    without a pilot. Rows that several providers share are shown divided by their slots.

    Attributes
    ----------
    rows, blank, unrouted : int
        Rows of the frame; those with nothing to ask about; those that nobody is asked about.
    unique : int
        Different questions among the others.
    answered : int
        Of these, those whose answer is in the journal, or came with the pilot.
    pilot : Run or None
        The pilot, if there was one.
    """

    def __init__(self, asked: Asked, view: ViewMaker | None, sample: int = 0) -> None:
        self._asked = asked
        self._view = view
        self._compiled = compile_route(asked.route, asked.table, resolve)
        self._run = planned(asked, self._compiled, None, keyless=True)
        units = self._run._units
        self.rows = len(asked.table.frame)
        self.blank = self._run.blank
        self.unique = len(units.first_row)
        self.unrouted = self._run.unrouted
        self._is_answered = self._look_up()
        self.pilot = self._fly(sample) if sample else None
        self.answered = int(self._is_answered.sum())
        self._run.tell_news()
        self.providers = self._per_provider()

    @property
    def requests(self) -> int:
        """Requests that a run without faults sends."""
        return self.unique - self.answered

    @property
    def tokens(self) -> int:
        """Tokens of these requests, in and out."""
        return int(self.providers[["tokens_in", "tokens_out"]].to_numpy().sum())

    @property
    def cost(self) -> float | None:
        """USD; None where the price of a provider that is asked is not known."""
        asked = self.providers[self.providers["requests"] > 0]
        return None if asked["cost"].isna().any() else float(asked["cost"].sum())

    @property
    def seconds(self) -> float | None:
        """How long it takes, roughly; None without a pilot."""
        asked = self.providers[self.providers["requests"] > 0]
        return None if asked["seconds"].isna().any() else float(asked["seconds"].max()) if len(asked) else 0.0

    def run(self) -> pd.DataFrame:
        """Carry out exactly this, and return the frame. What the pilot answered is not asked again."""
        if self.pilot is None:
            return carry_out(self._asked, self._view, compiled=self._compiled).frame
        done = np.asarray(self.pilot.rows["status"].isin(["answered", "reused"]))
        adjust = Adjustment(~done, self.pilot, spent=self.pilot.spent)
        return carry_out(self._asked, self._view, adjust, compiled=self._compiled).frame

    def __repr__(self) -> str:
        price = "price unknown" if self.cost is None else dollars(self.cost)
        time = "time unknown" if self.seconds is None else f"about {self.seconds:,.0f} s"
        return (
            f"<Plan: {self.rows:,} rows, {self.blank:,} blank, {self.unique:,} different, {self.answered:,} already "
            f"answered: {self.requests:,} requests, about {self.tokens:,} tokens, {price}, {time}>"
        )

    def _repr_html_(self) -> str:
        from html import escape

        return f"<div>{escape(repr(self))}</div>" + self.providers.to_html(float_format="{:.4g}".format)

    # ---- inside -------------------------------------------------------------------------------

    def _look_up(self) -> npt.NDArray[np.bool_]:
        """By unit: whether one of its providers answered it before."""
        known = np.zeros(self.unique, dtype=bool)
        terms = self._asked.terms
        with open_journal(None if terms.refresh else terms.journal, self._run._news) as journal:
            if journal is not None:
                memory = Memory(journal, self._run._plan)
                memory.recall_now()
                known[list(memory.units)] = True
        return known

    def _fly(self, sample: int) -> Run:
        """Ask about some of the rows, evenly spread over what is not answered yet."""
        waiting = np.flatnonzero(~self._is_answered)
        chosen = waiting[np.unique(np.linspace(0, len(waiting) - 1, min(sample, len(waiting))).astype(int))]
        of_row = self._run._units.unit_of_row
        adjust = Adjustment(np.isin(of_row, chosen), None)
        run = carry_out(self._asked, self._view, adjust, compiled=self._compiled)
        answered = np.asarray(run.rows["status"].isin(["answered", "reused"]))
        self._is_answered[of_row[answered]] = True
        return run

    def _per_provider(self) -> pd.DataFrame:
        plan = self._run._plan
        sizes = np.array([len(text.encode("utf-8", "replace")) for text in plan.texts], dtype=float)
        requests = np.zeros(len(plan.lanes), dtype=np.int64)
        text_bytes = np.zeros(len(plan.lanes))
        codes = np.array(plan.codes, dtype=np.int64)
        for code, node in enumerate(plan.itineraries):
            step = advance(node, {})
            mine = (codes == code) & ~self._is_answered
            for seat in step.seats if isinstance(step, Ask) else ():
                lanes = sorted(seat.providers)
                slots = np.array([plan.lanes[lane].limits.max_concurrency for lane in lanes])
                # Whole requests, and all of them: each lane ends where its share of the sum ends.
                ends = np.rint(mine.sum() * np.cumsum(slots) / slots.sum()).astype(np.int64)
                for lane, count in zip(lanes, np.diff(ends, prepend=0), strict=True):
                    requests[lane] += count
                    text_bytes[lane] += sizes[mine].sum() * count / max(1, mine.sum())
        flown = self._flown()
        table = [
            self._line(lane, int(requests[index]), text_bytes[index], flown.get(lane.name, {}))
            for index, lane in enumerate(plan.lanes)
        ]
        return pd.DataFrame(table).set_index("provider")

    def _line(self, lane: LaneSpec, requests: int, text_bytes: float, flown: Mapping[str, float]) -> dict[str, Any]:
        constant = len(lane.brief.system.encode("utf-8", "replace"))
        tokens_in = tokens_of(int(constant * requests + text_bytes))
        if "ratio" in flown:
            tokens_in = (constant * requests + text_bytes) * flown["ratio"]
        tokens_out = requests * flown.get("tokens_out", tokens_of(int(self._asked.task.reply_bytes())))
        return {
            "provider": lane.name,
            "requests": requests,
            "tokens_in": round(tokens_in),
            "tokens_out": round(tokens_out),
            "cost": _cost(requests, tokens_in, tokens_out, lane.price),
            "seconds": _seconds(lane, requests, tokens_in + tokens_out, flown.get("seconds")),
        }

    def _flown(self) -> dict[str, dict[str, float]]:
        """By provider, what the pilot showed: tokens per byte, tokens per answer, seconds per request."""
        if self.pilot is None:
            return {}
        texts, constants = self._asked.table.texts, {lane.name: lane.brief.system for lane in self._run._plan.lanes}
        found = {}
        done = self.pilot.requests[self.pilot.requests["error"].isna()]
        for name, own in done.groupby("provider", observed=True):
            constant = len(constants[str(name)].encode("utf-8", "replace"))
            sizes = [constant + len(texts[row].encode("utf-8", "replace")) for row in own["row"]]
            found[str(name)] = {
                "ratio": learn(zip(sizes, own["tokens_in"].astype(int).tolist(), strict=True)),
                "tokens_out": float(own["tokens_out"].astype(float).mean()),
                "seconds": quantile(own["seconds"].to_numpy(), 0.5),
            }
        return found


def _cost(requests: int, tokens_in: float, tokens_out: float, price: Price | None) -> float:
    """USD, NaN where it is unknown; tiers go by the average request."""
    if not requests:
        return 0.0 if price is not None else np.nan
    each = cost(Usage(round(tokens_in / requests), round(tokens_out / requests)), price)
    return np.nan if each is None or price is None else (each * requests)


def _seconds(lane: LaneSpec, requests: int, tokens: float, each: float | None) -> float:
    """How long a lane is busy: its slots, or its limits, whichever is tighter; NaN where latency is unknown."""
    if each is None:
        return np.nan
    limits = lane.limits
    by_limit = [requests * each / limits.max_concurrency]
    by_limit += [requests / limits.rpm * 60] if limits.rpm else []
    by_limit += [tokens / limits.tpm * 60] if limits.tpm else []
    return max(by_limit)
