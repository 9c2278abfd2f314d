"""Timings into numbers people compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["most_at_once", "quantile"]


def quantile(seconds: npt.NDArray[Any], q: float) -> float:
    """The ``q`` quantile, linear between neighbours; NaN where there is nothing."""
    return float(np.quantile(seconds, q)) if len(seconds) else float("nan")


def most_at_once(started: npt.NDArray[Any], ended: npt.NDArray[Any]) -> int:
    """The most intervals that lie over any one moment; one that ends as another begins makes room for it.

    Examples
    --------
    >>> most_at_once(np.array([0.0, 0.5, 1.0]), np.array([1.0, 2.0, 3.0]))
    2
    """
    moments = np.concatenate([ended, started])
    steps = np.where(np.argsort(moments, kind="stable") < len(ended), -1, 1)
    return int(max(np.cumsum(steps), default=0))
