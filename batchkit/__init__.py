"""Label a DataFrame with language models, several providers at once, every answer on its own row.

Importing this module registers ``df.llm`` and ``series.llm``.
"""

from typing import Any

from batchkit import accessor as _accessor
from batchkit import events
from batchkit.drawing import compare
from batchkit.errors import (
    BatchkitError,
    BatchkitWarning,
    CallError,
    ColumnError,
    ConfigError,
    InputError,
    Interrupted,
    LabelError,
    RouteError,
    RowFailed,
    UnknownKeyword,
)
from batchkit.journaling import journal
from batchkit.observing import observe
from batchkit.providers import (
    Anthropic,
    Embedded,
    FunctionProvider,
    Gemini,
    LangChain,
    Ollama,
    OpenAI,
    OpenAICompatible,
)
from batchkit.records import Prompt
from batchkit.routes import balance, by, split, when
from batchkit.runs import Job, Plan, Run, last_run
from batchkit.settings import use
from batchkit.tuning import Tuning, tune

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "BatchkitError",
    "BatchkitWarning",
    "CallError",
    "ColumnError",
    "ConfigError",
    "Embedded",
    "FunctionProvider",
    "Gemini",
    "InputError",
    "Interrupted",
    "Job",
    "LabelError",
    "LangChain",
    "Ollama",
    "OpenAI",
    "OpenAICompatible",
    "Plan",
    "Prompt",
    "RouteError",
    "RowFailed",
    "Run",
    "RunnableBatch",
    "Tuning",
    "UnknownKeyword",
    "__version__",
    "balance",
    "by",
    "compare",
    "events",
    "journal",
    "last_run",
    "observe",
    "playground",
    "split",
    "tune",
    "use",
    "when",
]


def __getattr__(name: str) -> Any:
    # The playground brings a web server along, which nobody needs who only labels.
    if name == "playground":
        from batchkit._playground import playground

        return playground
    # So does langchain-core, where it is installed.
    if name == "RunnableBatch":
        from batchkit.runnable import RunnableBatch

        return RunnableBatch
    raise AttributeError(f"module 'batchkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


_accessor.register()
