"""Defines and checks requests and responses of the API, and splits a request's text into sentences.

Each line of a text is a paragraph; an empty line is a paragraph without sentences. Model names are looked up only among
the served versions, never in the registry or the file system.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from flows.web.limits import Limits, RefusedRequest
from flows.web.served_version import AttentionKind, SentenceJson, ServedVersion
from model.decoding.translation import Search

MAX_ALPHA = 5.0
"""Above this alpha, length alone would decide."""

SENTENCE_FIELDS = (
    "sentences of each paragraph: source, its pieces, engine, and hypotheses, best first: text, ids, pieces, score, "
    "log_probability (natural), finished (false if it was cut)"
)
SURROGATE = re.compile("[\ud800-\udfff]")
"""JSON may contain a lone surrogate, but UTF-8 cannot encode it."""
Text = Annotated[str, AfterValidator(lambda text: SURROGATE.sub("\ufffd", text))]


class TranslateRequest(BaseModel):
    """A text to translate and the search settings."""

    model_config = ConfigDict(extra="forbid")
    text: Text = Field(description="paragraphs, one per line")
    model: str = Field("", description="a name or alias of /api/models; empty: the first")
    beam: int | None = Field(None, description="hypotheses kept at each step, 1 is greedy; default: the version's")
    alpha: float | None = Field(
        None,
        ge=0,
        le=MAX_ALPHA,
        allow_inf_nan=False,
        description="exponent of the length penalty; default: the version's",
    )
    nbest: int = Field(1, description="hypotheses per sentence, at most 2 x beam - 1")


class AttentionRequest(BaseModel):
    """A sentence and its translation, to compute attention weights."""

    model_config = ConfigDict(extra="forbid")
    source: Text = Field(description="one sentence")
    model: str = Field("", description="a name or alias of /api/models; empty: the first")
    target: Text | None = Field(None, description="its translation; without target and ids, the model's")
    ids: list[int] | None = Field(None, description="its translation as token ids, as /api/translate returns them")
    kind: AttentionKind = "cross"


@dataclass(frozen=True)
class ModelInfo:
    """A served version."""

    name: str
    aliases: tuple[str, ...]
    remark: str
    source_language: str
    target_language: str
    beam: int
    alpha: float
    engine: str
    limits: Mapping[str, int]


@dataclass(frozen=True)
class SearchSettings:
    """Settings of beam search. Only sentences with equal settings share a batch."""

    beam: int
    alpha: float

    @classmethod
    def of(cls, search: Search) -> "SearchSettings":
        return cls(search.decoding.beam, search.decoding.alpha)


@dataclass(frozen=True)
class TranslateResponse:
    """The translation of a text: the sentences of each paragraph, and the whole text."""

    model: str
    search: SearchSettings
    paragraphs: Annotated[tuple[tuple[SentenceJson, ...], ...], Field(description=SENTENCE_FIELDS)]
    text: str


@dataclass(frozen=True)
class AttentionResponse:
    """Weights by layer, head, row and column; each row sums to 1 up to rounding."""

    model: str
    kind: AttentionKind
    rows: list[str]
    columns: list[str]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]


@dataclass(frozen=True)
class ErrorResponse:
    """One sentence that says why the request failed."""

    error: str


@dataclass(frozen=True)
class TranslationPlan:
    """A checked request: the version, the search settings and the sentences of each paragraph."""

    served: ServedVersion
    search: Search
    paragraphs: tuple[tuple[str, ...], ...]

    @property
    def positions(self) -> list[tuple[int, int]]:
        """The paragraph of each sentence, and its place in the paragraph; both count from 0."""
        return [(p, s) for p, paragraph in enumerate(self.paragraphs) for s in range(len(paragraph))]

    @property
    def sentences(self) -> list[str]:
        """The sentences of all paragraphs."""
        return [sentence for paragraph in self.paragraphs for sentence in paragraph]

    def response(self, translated: Mapping[int, SentenceJson]) -> TranslateResponse:
        """Combine the translated sentences, which are given by number."""
        answers = iter(translated[number] for number in range(len(translated)))
        paragraphs = tuple(tuple(next(answers) for _ in paragraph) for paragraph in self.paragraphs)
        texts = (" ".join(sentence["hypotheses"][0]["text"] for sentence in paragraph) for paragraph in paragraphs)
        return TranslateResponse(self.served.name, SearchSettings.of(self.search), paragraphs, "\n".join(texts))


class ModelIndex:
    """Finds served versions by ``demo/1``, ``demo@champion`` or ``demo`` (the first version of that model)."""

    def __init__(self, served: Sequence[ServedVersion], limits: Limits) -> None:
        self.served = served
        self.limits = limits
        self.by_name: dict[str, ServedVersion] = {}
        for each in served:
            model = each.name.partition("/")[0]
            for name in (each.name, *(f"{model}@{alias}" for alias in each.aliases), model):
                self.by_name.setdefault(name, each)

    def find(self, name: str) -> ServedVersion:
        """Find a version; "" means the first. Raises RefusedRequest (404) for a version that is not served."""
        if not name:
            return self.served[0]
        if name not in self.by_name:
            allowed = ", ".join(each.name for each in self.served)
            raise RefusedRequest(404, f"no such model is served, allowed are {allowed}")
        return self.by_name[name]

    def longest(self, served: ServedVersion) -> int:
        """Return the most tokens that a sentence may have."""
        return min(self.limits.pieces, served.longest)

    def widest(self, served: ServedVersion) -> int:
        """Return the largest allowed beam."""
        return max(self.limits.beam, served.decoding.beam)

    def cards(self) -> list[ModelInfo]:
        """Describe every version, in the order of ``served``."""
        names = ("characters", "sentences", "beam", "attention_pieces")
        limits = {name: getattr(self.limits, name) for name in names}
        cards = []
        for each in self.served:
            decoding = each.decoding
            most = replace(decoding, beam=self.widest(each)).most_hypotheses
            own_limits = limits | {"pieces": self.longest(each), "nbest": most}
            about = (each.name, each.aliases, each.remark, *each.languages)
            cards.append(ModelInfo(*about, decoding.beam, decoding.alpha, each.engine, own_limits))
        return cards

    def plan(self, request: TranslateRequest) -> TranslationPlan:
        """Check a request and split its text. Raises RefusedRequest: 404 for an unknown model, 422 for other values."""
        served = self.find(request.model)
        limits = self.limits
        beam = served.decoding.beam if request.beam is None else request.beam
        alpha = served.decoding.alpha if request.alpha is None else request.alpha
        check_range("beam", beam, 1, self.widest(served))
        decoding = replace(served.decoding, beam=beam, alpha=alpha)
        most = decoding.most_hypotheses
        check_range("nbest", request.nbest, 1, most, f", the most that can finish with beam {beam}")
        search = Search(decoding, request.nbest, split="never")
        check_characters("the text", request.text, limits)
        lines = request.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        paragraphs = tuple(tuple(served.model.sentences(line)) for line in lines)
        plan = TranslationPlan(served, search, paragraphs)
        sentences = plan.sentences
        if len(sentences) > limits.sentences:
            raise RefusedRequest(422, f"the text has {len(sentences)} sentences, allowed are {limits.sentences}")
        longest = self.longest(served)
        for (paragraph, _), length in zip(plan.positions, served.model.lengths(sentences), strict=True):
            if length > longest:
                sentence = f"line {paragraph + 1} has a sentence of {length} pieces"
                raise RefusedRequest(422, f"{sentence}, allowed are {longest}; split the sentence")
        return plan

    def check_attention(self, served: ServedVersion, request: AttentionRequest) -> None:
        """Raise RefusedRequest (422) if the source is empty or a side is too long."""
        texts = {"source": request.source} | ({} if request.target is None else {"target": request.target})
        for name, text in texts.items():
            check_characters(name, text, self.limits)
        lengths = {"source": served.model.lengths([request.source])[0]}
        if not lengths["source"]:
            raise RefusedRequest(422, "source is empty, allowed is a sentence")
        if request.target is not None:
            lengths["target"] = served.model.target_length(request.target)
        if request.ids is not None:
            lengths["ids"] = len(request.ids)
        longest = min(self.limits.attention_pieces, self.longest(served))
        for name, length in lengths.items():
            if length > longest:
                raise RefusedRequest(422, f"{name} has {length} pieces, allowed are {longest} for attention")


def check_characters(name: str, text: str, limits: Limits) -> None:
    """Raise RefusedRequest (422) if a text has too many characters."""
    if len(text) > limits.characters:
        raise RefusedRequest(422, f"{name} has {len(text):,} characters, allowed are {limits.characters:,}")


def check_range(name: str, value: float, minimum: float, maximum: float, reason: str = "") -> None:
    """Raise RefusedRequest (422) that names the field, its value and the allowed range."""
    if not minimum <= value <= maximum:
        raise RefusedRequest(422, f"{name} is {value}, allowed is {minimum} to {maximum}{reason}")


def validation_message(errors: Iterable[Mapping[str, Any]]) -> str:
    """Join up to three validation errors of a request, without its values."""
    messages = []
    for error in errors:
        parts = [f"{part}" for part in error["loc"] if part != "body"]
        is_text = error["type"] == "model_attributes_type"
        hint = "; send it with the header Content-Type: application/json" if is_text else ""
        messages.append(f"{'.'.join(parts) or 'the body'}: {error['msg']}{hint}")
    return "; ".join(messages[:3])
