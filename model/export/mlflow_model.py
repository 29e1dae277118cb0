"""The registered model as an MLflow pyfunc model: a models-from-code file, the only module that imports MLflow here.

Artifacts are the folders ``weights`` and ``vocabulary``; ``code_paths`` must name the folder of this package. The model
configuration may hold ``source_language`` and ``max_pieces`` (the longest source in training). Params (the fields of
``Decoding``; ``split``: long, always or never) reach ``predict`` only if the model's signature lists them.
"""

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlflow

from model.config import Decoding
from model.decoding.lines import LineTranslator, Splitting, beam_searcher
from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter, unsplit
from model.decoding.translator import Translator


class TranslatorModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A ``Translator`` with the interface of MLflow."""

    def load_context(self, context: Any) -> None:
        """Load the weights and the vocabulary; MLflow calls this once."""
        self.translator = Translator.load(Path(context.artifacts["weights"]), Path(context.artifacts["vocabulary"]))
        config = context.model_config or {}
        language = config.get("source_language", DEFAULT_LANGUAGE)
        self.splitting = Splitting(
            sentences=splitter(language) if find_spec("sentencex") else unsplit,
            longest=config.get("max_pieces", self.translator.longest_source),
        )

    # A type hint on the input would make MLflow derive a signature of its own and drop the params.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Translate a string, a list of strings, a Series or a DataFrame with one column; return a list of strings.

        Raises ValueError that names an unknown param, or a line that is not a string or has too long a sentence.
        """
        options = dict(params or {})
        known = [*(field.name for field in dataclasses.fields(Decoding)), "split"]
        for name in options:
            if name not in known:
                raise ValueError(f"param {name!r} is unknown, allowed are {', '.join(known)}")
        splitting = dataclasses.replace(self.splitting, when=options.pop("split", self.splitting.when))
        if splitting.when == "always" and splitting.sentences is unsplit:
            raise ValueError("split is 'always', allowed is never or long if the library sentencex is not installed")
        lines = LineTranslator(self.translator, beam_searcher(self.translator, Decoding(**options)), splitting)
        translated = lines.translate(lines_of(model_input))
        for number, line in enumerate(translated, start=1):
            if not line.translations:
                raise ValueError(lines.too_long(line, number))
        return [line.translations[0].text for line in translated]


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
