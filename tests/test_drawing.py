"""Drawing runs: what is no run is refused in words, and not with its contents."""

from __future__ import annotations

import pandas as pd
import pytest

import batchkit as bk


@pytest.mark.parametrize(
    ("given", "what"),
    [(None, "None"), (pd.DataFrame({"text": ["secret"]}), "a DataFrame"), (pd.Series(["secret"]), "a Series")],
)
def test_what_is_no_run_is_refused_by_its_kind(given, what):
    """A frame given for its run is named, and none of its cells is shown."""
    with pytest.raises(
        bk.InputError, match=rf"compare: run 1 is {what}, not a run such as bk\.last_run\(\)\."
    ) as caught:
        bk.compare(given)
    assert "secret" not in str(caught.value)
