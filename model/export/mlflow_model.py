"""The registered model as an MLflow pyfunc model: a models-from-code file; no other module here imports MLflow.

Artifacts are the folders ``weights`` and ``vocabulary``; ``code_paths`` must name the folder of this package. The model
configuration may hold ``source_language`` and ``max_pieces`` (the longest source in training). MLflow passes a param to
``predict`` only if the model's signature lists it: ``translator_params`` lists all with their defaults.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import mlflow
import torch

from model.config import Decoding
from model.config.decoding import EngineChoice
from model.config.keying import require
from model.decoding.search_engine import Opened, SearchEngine
from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter
from model.decoding.translation import Search, Translation, translator_params
from model.decoding.translator import Translator
from model.decoding.version_translator import VersionTranslator
from model.export.open_engine import open_ctranslate2


class TranslatorModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A ``VersionTranslator`` with the interface of MLflow."""

    def load_context(self, context: Any) -> None:
        """Load the weights and the vocabulary; MLflow calls this once."""
        self.folders = Path(context.artifacts["weights"]), Path(context.artifacts["vocabulary"])
        translator = Translator.load(*self.folders)
        config = context.model_config or {}
        split = splitter(config.get("source_language", DEFAULT_LANGUAGE))
        longest = config.get("max_pieces", translator.longest_source)
        self.model = VersionTranslator("", translator, SearchEngine(translator), split, Decoding(), longest)
        choices: tuple[EngineChoice, ...] = get_args(EngineChoice)
        self.engines = {
            choice: SearchEngine(translator, choice, partial(self._open_ctranslate2, choice)) for choice in choices
        }

    # With a type hint on the input, MLflow would derive its own signature and drop the params.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Translate a string, a list of strings, a Series or a DataFrame with one column; return a list of strings.

        With the param ``scores``, or ``n_best`` above 1, return a list of dicts instead: see ``rows_of``. Raises
        ValueError naming an impossible param, or a line that is not a string or has a too long sentence.
        """
        options = translator_params(Decoding()) | (params or {})
        decoding = Decoding(**{name: options[name] for name in Decoding().search() if name in options})
        search = Search(decoding, options["n_best"], options["split"])
        require(options["engine"] in self.engines, "engine", options["engine"], ", ".join(self.engines))
        model = replace(self.model, engine=self.engines[options["engine"]])
        translated = model.translate(lines_of(model_input), search)
        for number, line in enumerate(translated, start=1):
            if line.refusal:
                raise ValueError(f"line {number} has {line.refusal}")
        if options["scores"] or search.n_best > 1:
            return rows_of(translated)
        return [line.hypotheses[0].text for line in translated]

    def _open_ctranslate2(self, choice: EngineChoice) -> Opened:
        """Open CTranslate2; the user's cache keeps the model's form for it."""
        try:
            caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        except RuntimeError as error:  # a user without a home folder, as in some containers
            return Opened(None, f"no folder for CTranslate2's form: {error}")
        return open_ctranslate2(
            self.model.translator,
            *self.folders,
            caches / "repro" / "ctranslate2",
            Decoding(),
            required=choice == "ctranslate2",
            threads=torch.get_num_threads(),
        )


def rows_of(lines: Sequence[Translation]) -> list[dict[str, Any]]:
    """Return a dict for each hypothesis, the best of a line first.

    ``line`` and ``rank`` are counted from 1. ``log_probability`` is the natural logarithm; ``pieces`` is the number of
    tokens, including eos. A hypothesis that is not ``finished`` was cut at the maximum length. ``engine`` is the one
    that found it.
    """
    return [
        {"line": number, "rank": rank, **hypothesis.as_json(), "engine": line.engine}
        for number, line in enumerate(lines, start=1)
        for rank, hypothesis in enumerate(line.hypotheses, start=1)
    ]


def lines_of(model_input: Any) -> list[str]:
    """Return the strings of a request. Raises ValueError for more than one column or a value that is not a string."""
    if hasattr(model_input, "columns"):
        if model_input.shape[1] != 1:
            raise ValueError(f"the table has columns {list(model_input.columns)}, allowed is one column of text")
        model_input = model_input.iloc[:, 0]
    lines = [model_input] if isinstance(model_input, str) else list(model_input)
    for number, line in enumerate(lines, start=1):
        if not isinstance(line, str):
            raise ValueError(f"line {number} is {line!r}, allowed is a string")
    return lines


mlflow.models.set_model(TranslatorModel())
