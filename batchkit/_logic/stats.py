"""Timings into numbers people compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["quantile"]


def quantile(seconds: npt.NDArray[Any], q: float) -> float:
    """The ``q`` quantile, linear between neighbours; NaN where there is nothing."""
    return float(np.quantile(seconds, q)) if len(seconds) else float("nan")
