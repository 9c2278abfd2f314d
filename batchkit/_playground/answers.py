"""Who answers in the playground: the embedded model, or a function of the user's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from batchkit._engine.embedded import LabelModel, load_model
from batchkit._playground.judge import Asked, Verdict, read_meanings

__all__ = ["AnswerFunction", "Answerer"]

AnswerFunction = Callable[[str, Sequence[Any]], Any]

_MODELS_KEPT = 32


class Answerer:
    """Gives a verdict on a request: ``answer(text, labels)`` if there is such a function, else the embedded model's."""

    def __init__(self, answer: AnswerFunction | None = None) -> None:
        if answer is None:
            # Now, for the first request would wait for it longer than its latency says.
            load_model()
        self._answer = answer
        self._models: OrderedDict[tuple[str, tuple[Any, ...]], LabelModel] = OrderedDict()

    def __call__(self, asked: Asked) -> Verdict:
        """Judge the row of a request; without labels and function, repeat it."""
        labels = asked.labels
        if self._answer is not None:
            return Verdict(self._answer(asked.text, labels))
        if not labels:
            return Verdict(asked.text)
        probabilities = self._model(asked.system, labels).probabilities([asked.text])[0]
        best = int(probabilities.argmax())
        return Verdict(labels[best], float(probabilities[best]))

    def _model(self, system: str, labels: tuple[Any, ...]) -> LabelModel:
        model = self._models.get((system, labels))
        if model is None:
            meanings = list(read_meanings(system, labels).values())
            model = LabelModel([meaning.text for meaning in meanings], [meaning.description for meaning in meanings])
            self._models[system, labels] = model
            if len(self._models) > _MODELS_KEPT:
                self._models.popitem(last=False)
        return model
