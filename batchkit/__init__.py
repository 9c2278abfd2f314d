"""Label a DataFrame with language models, several providers at once, every answer on its own row.

Importing this module registers ``df.llm`` and ``series.llm``.
"""

from typing import Any

from batchkit import accessor as _accessor
from batchkit.errors import (
    BatchkitError,
    BatchkitWarning,
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
from batchkit.providers import Anthropic, Embedded, FunctionProvider, Gemini, Ollama, OpenAI, OpenAICompatible
from batchkit.records import Prompt
from batchkit.routes import balance, by, split, when
from batchkit.runs import Run, last_run
from batchkit.settings import use

__version__ = "0.1.0"

__all__ = [
    "Anthropic",
    "BatchkitError",
    "BatchkitWarning",
    "ColumnError",
    "ConfigError",
    "Embedded",
    "FunctionProvider",
    "Gemini",
    "InputError",
    "Interrupted",
    "LabelError",
    "Ollama",
    "OpenAI",
    "OpenAICompatible",
    "Prompt",
    "RouteError",
    "RowFailed",
    "Run",
    "UnknownKeyword",
    "__version__",
    "balance",
    "by",
    "journal",
    "last_run",
    "playground",
    "split",
    "use",
    "when",
]


def __getattr__(name: str) -> Any:
    # The playground brings a web server along, which nobody needs who only labels.
    if name == "playground":
        from batchkit._playground import playground

        return playground
    raise AttributeError(f"module 'batchkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


_accessor.register()
