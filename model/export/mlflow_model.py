"""The registered model as an MLflow pyfunc model: a models-from-code file, the only module that imports MLflow here.

Artifacts are the folders ``weights`` and ``vocabulary``; ``code_paths`` must name the folder of this package. The model
configuration may hold ``source_language`` and ``max_pieces`` (the longest source in training). Params reach ``predict``
only if the model's signature lists them: ``model.config.pyfunc_params`` has all with their defaults.
"""

import dataclasses
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlflow
import torch

from model.config import Decoding, Sampling
from model.config.pyfunc_params import translator_params
from model.decoding.lines import LineTranslator, Splitting, TranslatedLine, beam_searcher, sampler
from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter, unsplit
from model.decoding.translator import Translator
from model.export.search_engine import EngineSettings, SearchEngine, open_engine, why_unsupported


class TranslatorModel(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """A ``Translator`` with the interface of MLflow."""

    def load_context(self, context: Any) -> None:
        """Load the weights and the vocabulary; MLflow calls this once."""
        self.folders = Path(context.artifacts["weights"]), Path(context.artifacts["vocabulary"])
        self.translator = Translator.load(*self.folders)
        self.engines: dict[str, SearchEngine] = {}
        config = context.model_config or {}
        language = config.get("source_language", DEFAULT_LANGUAGE)
        self.splitting = Splitting(
            sentences=splitter(language) if find_spec("sentencex") else unsplit,
            longest=config.get("max_pieces", self.translator.longest_source),
        )

    # A type hint on the input would make MLflow derive a signature of its own and drop the params.
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """Translate a string, a list of strings, a Series or a DataFrame with one column; return a list of strings.

        With the param ``scores``, or ``n_best`` above 1, return a list of dicts instead: see ``hypotheses_of``. Raises
        ValueError that names an unknown or impossible param, or a line that is not a string or has too long a sentence.
        """
        known = translator_params(Decoding())
        options = known | {"split": self.splitting.when} | (params or {})
        for name in options:
            if name not in known:
                raise ValueError(f"param {name!r} is unknown, allowed are {', '.join(known)}")
        splitting = dataclasses.replace(self.splitting, when=options["split"])
        if splitting.when == "always" and splitting.sentences is unsplit:
            raise ValueError("split is 'always', allowed is never or long if the library sentencex is not installed")
        decoding = Decoding(**{name: options[name] for name in Decoding().search() if name in options})
        sampling = Sampling(**{name: options[name] for name in vars(Sampling())})
        n_best, engine = options["n_best"], SearchEngine(self.translator)
        if options["sample"]:
            if n_best != 1:
                raise ValueError(f"n_best is {n_best}, allowed is 1 with sample")
            search = sampler(self.translator, sampling, decoding)
        else:
            for name, value in vars(Sampling()).items():
                if options[name] != value:
                    raise ValueError(f"{name} is {options[name]}, allowed is {value} without sample")
            engine = self._engine(options["engine"], decoding)
            search = beam_searcher(self.translator, decoding, n_best, engine)
        lines = LineTranslator(self.translator, search, splitting, n_best)
        sources = lines_of(model_input)
        translated = lines.translate(sources, [options["prefix"]] * len(sources))
        for number, line in enumerate(translated, start=1):
            if not line.translations:
                raise ValueError(lines.why_empty(line, number))
        if options["scores"] or n_best > 1:
            begun = bool(options["sample"] or options["prefix"].strip())
            return hypotheses_of(translated, engine.name_for(decoding, n_best, constrained=begun))
        return [line.translations[0].text for line in translated]

    def _engine(self, choice: Any, decoding: Decoding) -> SearchEngine:
        """The engine of ``choice``, opened at its first use; its CTranslate2 form is kept in the user's cache."""
        if why_unsupported(decoding):
            return SearchEngine(self.translator, reason=why_unsupported(decoding))
        if choice not in self.engines:
            try:
                caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
            except RuntimeError as error:  # a user without a home folder, as in some containers
                return SearchEngine(self.translator, reason=f"no folder for CTranslate2's form: {error}")
            cache = caches / "repro" / "ctranslate2"
            settings = EngineSettings(decoding, cache, choice, threads=torch.get_num_threads(), compared=Decoding())
            self.engines[choice] = open_engine(self.translator, *self.folders, settings)
        return self.engines[choice]


def hypotheses_of(lines: Sequence[TranslatedLine], engine: str) -> list[dict[str, Any]]:
    """Return a dict for each hypothesis, the best of a line first; ``engine`` names what found them.

    ``line`` and ``rank`` are counted from 1, ``log_probability`` is natural, ``pieces`` are tokens with end of
    sentence, and a hypothesis that is not ``finished`` was cut at the greatest length.
    """
    return [
        {
            "line": number,
            "rank": rank,
            "text": each.text,
            "score": each.score,
            "log_probability": each.log_probability,
            "pieces": each.length,
            "finished": each.finished,
            "engine": engine,
        }
        for number, line in enumerate(lines, start=1)
        for rank, each in enumerate(line.translations, start=1)
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
