"""What is asked and answered over the API, and how a request's text becomes sentences. A refusal is one sentence.

Text is paragraphs, one a line; an empty line is a paragraph without sentences. Models are found by name among those
that are served: no name is ever looked up elsewhere, or opened.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from infra.web.limits import Limits, RefusedRequest
from infra.web.protocol import AttentionKind, SearchSettings, Sentence, ServedModel

MAX_ALPHA = 5.0
"""Greatest alpha: above, length alone would decide."""


SURROGATE = re.compile("[\ud800-\udfff]")


def replace_surrogates(text: str) -> str:
    """JSON can name halves of characters, which no encoding has: U+FFFD stands for each."""
    return SURROGATE.sub("\ufffd", text)


Text = Annotated[str, AfterValidator(replace_surrogates)]


class TranslateRequest(BaseModel):
    """A text to translate."""

    model_config = ConfigDict(extra="forbid")
    text: Text = Field(description="paragraphs, one a line")
    model: str = Field("", description="a name or alias of /api/models; empty: the first")
    beam: int | None = Field(None, description="hypotheses kept at each step, 1 is greedy; else the version's own")
    alpha: float | None = Field(None, allow_inf_nan=False, description="exponent of the length penalty; else its own")
    nbest: int = Field(1, description="hypotheses of each sentence, up to the beam")


class AttentionRequest(BaseModel):
    """A sentence and its translation, to be looked into."""

    model_config = ConfigDict(extra="forbid")
    source: Text = Field(description="one sentence")
    model: str = Field("", description="a name or alias of /api/models; empty: the first")
    target: Text | None = Field(None, description="its translation; without it and ids, the model's own")
    ids: list[int] | None = Field(None, description="its translation as piece ids, as /api/translate gives them")
    kind: AttentionKind = "cross"


class AttentionImageRequest(AttentionRequest):
    """Which map is to be drawn."""

    layer: int = Field(0, ge=0, description="counted from 1; 0: the mean over all")
    head: int = Field(0, ge=0, description="counted from 1; 0: the mean over all")
    dark: bool = False


@dataclass(frozen=True)
class ModelInfo:
    """A served version."""

    name: str
    aliases: tuple[str, ...]
    source_language: str
    target_language: str
    beam: int
    alpha: float
    engine: str
    limits: Mapping[str, int]


@dataclass(frozen=True)
class TranslateResponse:
    """A text's translation: the sentences of each paragraph, and all of it as text."""

    model: str
    search: SearchSettings
    paragraphs: tuple[tuple[Sentence, ...], ...]
    text: str


@dataclass(frozen=True)
class AttentionResponse:
    """Weights by layer, head, row and column; each row sums to 1 but for rounding."""

    model: str
    kind: AttentionKind
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]


@dataclass(frozen=True)
class ErrorResponse:
    """Why there is no answer."""

    error: str


@dataclass(frozen=True)
class TranslationPlan:
    """What a text asks of a model: the sentences of each paragraph."""

    served: ServedModel
    search: SearchSettings
    n_best: int
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def sentences(self) -> list[str]:
        return [sentence for paragraph in self.paragraphs for sentence in paragraph]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Paragraph and place in it of each sentence."""
        return [(p, s) for p, paragraph in enumerate(self.paragraphs) for s in range(len(paragraph))]

    def translated(self, found: Mapping[int, Sentence]) -> TranslateResponse:
        """All sentences, by number, put together."""
        answers = iter(found[number] for number in range(len(self.sentences)))
        paragraphs = tuple(tuple(next(answers) for _ in paragraph) for paragraph in self.paragraphs)
        texts = (" ".join(sentence.hypotheses[0].text for sentence in paragraph) for paragraph in paragraphs)
        return TranslateResponse(self.served.name, self.search, paragraphs, "\n".join(texts))


class ModelIndex:
    """The served versions by name; an alias finds its version, a bare name the first of that model."""

    def __init__(self, served: Sequence[ServedModel], limits: Limits) -> None:
        self.served, self.limits = served, limits
        self.known: dict[str, ServedModel] = {}
        for each in served:
            model = each.name.partition("/")[0]
            for name in (each.name, *(f"{model}@{alias}" for alias in each.aliases), model):
                self.known.setdefault(name, each)

    def find(self, name: str) -> ServedModel:
        """Raises Refused (404) for what is not served."""
        if not name:
            return self.served[0]
        if name not in self.known:
            raise RefusedRequest(
                404, f"no such model is served, there is: {', '.join(each.name for each in self.served)}"
            )
        return self.known[name]

    def longest(self, served: ServedModel) -> int:
        """Pieces of the longest sentence that is taken."""
        return min(self.limits.pieces, served.longest)

    def cards(self) -> list[ModelInfo]:
        names = ("characters", "sentences", "beam", "attention_pieces")
        limits = {name: getattr(self.limits, name) for name in names}
        return [
            ModelInfo(
                each.name,
                each.aliases,
                *each.languages,
                each.search.beam,
                each.search.alpha,
                each.engine,
                limits | {"pieces": self.longest(each)},
            )
            for each in self.served
        ]

    def plan(self, ask: TranslateRequest) -> TranslationPlan:
        """Raises Refused: 404 for an unknown model, 422 for what is too long or cannot be."""
        served, limits = self.find(ask.model), self.limits
        search = SearchSettings(
            served.search.beam if ask.beam is None else ask.beam,
            served.search.alpha if ask.alpha is None else ask.alpha,
        )
        check_range("beam", search.beam, 1, max(limits.beam, served.search.beam))
        check_range("alpha", search.alpha, 0, MAX_ALPHA)
        check_range("nbest", ask.nbest, 1, search.beam, " (the beam)")
        if len(ask.text) > limits.characters:
            raise RefusedRequest(422, f"the text has {len(ask.text):,} characters, allowed are {limits.characters:,}")
        lines = ask.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        paragraphs = tuple(tuple(served.sentences(line)) for line in lines)
        plan = TranslationPlan(served, search, ask.nbest, paragraphs)
        if len(plan.sentences) > limits.sentences:
            raise RefusedRequest(422, f"the text has {len(plan.sentences)} sentences, allowed are {limits.sentences}")
        for (paragraph, _), length in zip(plan.places, served.lengths(plan.sentences), strict=True):
            if length > self.longest(served):
                most = self.longest(served)
                raise RefusedRequest(422, f"line {paragraph + 1} has a sentence of {length} pieces, allowed are {most}")
        return plan

    def check_sides(self, served: ServedModel, ask: AttentionRequest) -> None:
        """Raises Refused (422) where a side is too long to be looked into."""
        texts = [("source", ask.source)] if ask.target is None else [("source", ask.source), ("target", ask.target)]
        for name, text in texts:
            if len(text) > self.limits.characters:
                raise RefusedRequest(
                    422, f"{name} has {len(text):,} characters, allowed are {self.limits.characters:,}"
                )
        sides = [(name, length) for (name, _), length in zip(texts, served.lengths([t for _, t in texts]), strict=True)]
        if ask.ids is not None:
            sides.append(("ids", len(ask.ids)))
        for name, length in sides:
            if length > (most := min(self.limits.attention_pieces, self.longest(served))):
                raise RefusedRequest(
                    422, f"{name} has {length} pieces, allowed are {most} where attention is asked for"
                )
        if not sides[0][1]:
            raise RefusedRequest(422, "source is empty, allowed is a sentence")


def check_range(name: str, value: float, least: float, most: float, why: str = "") -> None:
    """Raises Refused (422) naming the field, its value and what is allowed."""
    if not least <= value <= most:
        raise RefusedRequest(422, f"{name} is {value}, allowed is {least} to {most}{why}")


def validation_message(errors: Iterable[Mapping[str, object]]) -> str:
    """What is wrong with a request, without repeating what it held."""
    said = []
    for error in errors:
        place = error.get("loc", ())
        words = [f"{word}" for word in place if word not in ("body", "query")] if isinstance(place, tuple) else []
        said.append(f"{'.'.join(words) or 'the body'}: {error.get('msg', 'not allowed')}")
    return "; ".join(said[:3])
