"""batchkit as a client of the rig that `peers.py` is given: ``common`` is the rig's, it has the job and measures it."""

from __future__ import annotations

import sys
from typing import Any

from common import LABELS, MODEL, clean, main


def load() -> None:
    # As in the rig's other clients: what imports cost is measured apart, also those that batchkit makes when needed.
    global bk, pd
    import aiohttp  # noqa: F401
    import pandas as pd

    import batchkit as bk


def on_asyncio(texts: list[str], settings: Any) -> list[str | None]:
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    return classify(texts, settings)


def classify(texts: list[str], settings: Any) -> list[str | None]:
    provider = bk.OpenAI(MODEL, base_url=settings.v1, api_key="none", max_concurrency=settings.concurrency)
    labels = pd.Series(texts).llm.classify(list(LABELS), route=provider, progress=False, journal=False)
    return [clean(label) for label in labels]


if __name__ == "__main__":
    main(load, {"classify": on_asyncio, "classify on uvloop": classify})
