"""Load registered versions and serve them to the web page: translations and attention maps.

The beam search runs on CTranslate2 where it finds what our own engine does (``model.export.search_engine``), else on
our own model, as sampling and attention always do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.inference.version_config import decoding_config
from flows.inference.version_engine import open_version_engine
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import PREFERRED, Version
from infra.tracking.registry import resolve, versions
from infra.web.protocol import AttentionKind, AttentionMap, Hypothesis, SearchSettings, Sentence, Source
from model.config import Decoding, Sampling
from model.config.engines import EngineChoice, Quantization
from model.config.special_pieces import BOS, EOS, SPECIAL_TOKENS, UNK
from model.errors import JobError

if TYPE_CHECKING:
    from model.decoding.beam_search import Hypothesis as Searched
    from model.decoding.sentence_splitting import SentenceSplitter
    from model.decoding.translator import Translator
    from model.export.search_engine import SearchEngine


@dataclass(frozen=True)
class ServedVersion:
    """A version with its model loaded. Implements ``infra.web.protocol.ServedModel``."""

    name: str
    aliases: tuple[str, ...]
    remark: str
    languages: tuple[str, str]
    decoding: Decoding
    translator: Translator
    split: SentenceSplitter
    engines: SearchEngine

    @property
    def search(self) -> SearchSettings:
        return SearchSettings(self.decoding.beam, self.decoding.alpha)

    @property
    def engine(self) -> str:
        return self.engines.name

    @property
    def longest(self) -> int:
        return self.translator.longest_source

    def sentences(self, line: str) -> Sequence[str]:
        [read] = self.translator.vocabulary.read([line])
        return [sentence for sentence in self.split(read) if self.lengths([sentence])[0]]

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        vocabulary = self.translator.vocabulary
        return [len(ids) for ids in vocabulary.encode_source(vocabulary.read(sentences))]

    def prefix_length(self, prefix: str) -> int:
        return len(self.translator.vocabulary.encode_target([prefix.strip()])[0])

    def unknown_in_prefix(self, prefix: str) -> str:
        return self.translator.vocabulary.unknown_in_target(prefix.strip())

    def most_hypotheses(self, beam: int) -> int:
        return replace(self.decoding, beam=beam).most_hypotheses

    def translate(self, sources: Sequence[Source], search: SearchSettings, n_best: int) -> Sequence[Sentence]:
        decoding = replace(self.decoding, beam=search.beam, alpha=search.alpha)
        vocabulary, sampling = self.translator.vocabulary, search.sampling
        sentences = [source.text for source in sources]
        encoded = vocabulary.encode_source(vocabulary.read(sentences))
        forced = vocabulary.encode_target([source.prefix.strip() for source in sources])
        prefixes = {number: prefix for number, prefix in enumerate(forced) if prefix}
        if sampling:
            settings = Sampling(sampling.temperature, sampling.top_k, seed=sampling.seed)
            numbers = [source.number for source in sources]
            found = [[each] for each in self.translator.sample(encoded, settings, decoding, prefixes, numbers)]
        else:
            found = self.engines.search_n_best(encoded, decoding, n_best, prefixes)
        return [
            Sentence(
                sentence,
                tuple(vocabulary.source_pieces(source)),
                tuple(map(self._hypothesis, hypotheses)),
                self.engines.name_for(decoding, n_best, constrained=bool(sampling or prefix)),
            )
            for sentence, source, hypotheses, prefix in zip(sentences, encoded, found, forced, strict=True)
        ]

    def maps(self, source: str, target: str | Sequence[int]) -> Mapping[AttentionKind, AttentionMap]:
        vocabulary = self.translator.vocabulary
        [read] = vocabulary.encode_source(vocabulary.read([source]))
        written = vocabulary.encode_target([target.strip()])[0] if isinstance(target, str) else list(target)
        for number in written:
            if not UNK <= number < vocabulary.target_size:
                allowed = f"{UNK} to {vocabulary.target_size - 1}"
                raise ValueError(f"ids has {number}, allowed is {allowed}")
        self.translator.check_source(read, "source")
        self.translator.check_target(written, "target")
        found = self.translator.attention_maps(read, written)
        of_source = tuple(vocabulary.source_pieces(self.translator.source_tokens(read)))
        pieces = vocabulary.target_pieces(written)
        writes, reads = (*pieces, SPECIAL_TOKENS[EOS]), (SPECIAL_TOKENS[BOS], *pieces)
        return {
            "cross": AttentionMap(writes, of_source, found.cross.numpy()),
            "encoder": AttentionMap(of_source, of_source, found.encoder.numpy()),
            "decoder": AttentionMap(writes, reads, found.decoder.numpy()),
        }

    def _hypothesis(self, found: Searched) -> Hypothesis:
        pieces = tuple(self.translator.vocabulary.target_pieces(found.pieces))
        text = self.translator.text(found)
        return Hypothesis(text, found.score, found.log_probability, found.pieces, pieces, found.finished)


def select_versions(names: Sequence[str], site: Site) -> list[Version]:
    """The named versions without repeats; without names those with an alias, champions first, else the newest of each
    model.

    Raises BadConfiguration if there is none.
    """
    if names:
        found = [resolve(site.tracking, name) for name in names]
    else:
        known = versions(site.registry)
        newest = {version.name: version for version in reversed(known)}
        found = [version for version in known if version.aliases] or list(newest.values())
    if not found:
        raise BadConfiguration(
            f"no model is registered in {site.root.absolute()} yet: repro run demo registers one, or set REPRO_ROOT"
        )
    each = {(version.name, version.version): version for version in found}.values()
    return list(each) if names else sorted(each, key=lambda version: PREFERRED[0] not in version.aliases)


def load_version(
    version: Version, site: Site, engine: EngineChoice = "auto", quantization: Quantization = "float32"
) -> ServedVersion:
    """Load a version. Raises BadConfiguration if ``engine`` is ``ctranslate2`` and its library is missing, BadData for
    damaged weights or a damaged vocabulary."""
    from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter
    from model.decoding.translator import Translator

    folder = local_folder(site.tracking, version)
    decoding = decoding_config(version)
    try:
        paths, graphs = (folder / "weights", folder / "vocabulary"), site.search_graphs
        translator = Translator.load(*paths, site.device, site.threads_each, graphs=graphs)
    except (JobError, ValueError) as error:
        raise BadData(f"{version.name}/{version.version} cannot be loaded: {error}") from error
    return ServedVersion(
        f"{version.name}/{version.version}",
        version.aliases,
        version.remark,
        (version.tags.get("source_language", ""), version.tags.get("target_language", "")),
        decoding,
        translator,
        splitter(version.tags.get("source_language", "") or DEFAULT_LANGUAGE),
        open_version_engine(version, folder, translator, site, decoding, engine, quantization, several_batches=True),
    )
