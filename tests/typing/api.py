"""How users write batchkit, for the type checker: read by mypy, never run."""

from __future__ import annotations

import pandas as pd

import batchkit as bk

fast = bk.OpenAI("some-model", max_concurrency=32, rpm=5_000, tpm=2_000_000)
strong = bk.Anthropic("some-model", name="strong", timeout=30.0, deadline=120.0, max_retries=2, temperature=0.0)
local = bk.OpenAICompatible("some-model", base_url="http://localhost:8000", max_output_tokens=64)
offline = bk.Embedded()


def by_length(prompt: bk.Prompt) -> str:
    return "long" if len(prompt) > 80 else "short"


async def in_batches(prompts: list[bk.Prompt]) -> list[object]:
    return [by_length(prompt) for prompt in prompts]


one_by_one = bk.FunctionProvider(by_length)
batched = bk.FunctionProvider(in_batches, batched=True, rows_per_request=16)

long = bk.when("text.str.len() > 80", strong).when(lambda frame: frame["lang"] == "zh", strong).otherwise(fast)
keyed = bk.by("lang", {"zh": strong, "en": fast, "xx": None}, default=long)
counted = bk.split({fast: 20, strong: ...})
shared = bk.split({fast: 0.7, strong: 0.3})
balanced = bk.balance(fast, "anthropic:some-model")

bk.use(route=long)
with bk.use(route=balanced, progress=False, on_error="raise"):
    pass

run: bk.Run | None = bk.last_run()
if run is not None:
    frame: pd.DataFrame = run.frame
    rows: pd.DataFrame = run.rows
    requests: pd.DataFrame = run.requests
    failed: pd.DataFrame = run.failed
    summary: pd.DataFrame = run.summary

tuning: bk.Tuning = bk.tune("openai:some-model", pd.Series(["a"]), ["x", "y"], concurrency=(1, 5), max_cost=1.0)
several: bk.Tuning = bk.tune(batched, pd.DataFrame({"text": ["a"]}), column="text", batches=[(16, 0.1)])
table: pd.DataFrame = tuning.table
recommended: dict[str, float] | None = tuning.recommended
reason: str = tuning.reason
runs: tuple[bk.Run, ...] = tuning.runs


def note(event: bk.events.Event) -> object:
    match event:
        case bk.events.Attempted(provider=provider, seconds=seconds):
            return provider.upper(), seconds + 1.0
        case bk.events.Batched(size=size):
            return size + 1
    return None


with bk.observe(note) as observer:
    failed_with: BaseException | None = observer.error

try:
    pass
except bk.UnknownKeyword as keyword_error:
    config_error: bk.ConfigError = keyword_error
    type_error: TypeError = keyword_error
except bk.RowFailed as row_error:
    package_error: bk.BatchkitError = row_error
except bk.Interrupted as interrupt:
    stop: KeyboardInterrupt = interrupt
