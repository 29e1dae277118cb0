"""Load registered versions and serve them to the web page: translations and attention maps.

The beam search runs on our own model, or on CTranslate2 if ``repro export`` has written that format of the version.
Attention always comes from our own model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flows.inference.version_config import decoding_config
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import PREFERRED, Version
from infra.tracking.registry import resolve, versions
from infra.web.protocol import AttentionKind, AttentionMap, Hypothesis, SearchSettings, Sentence, Source
from model.config import Decoding, Sampling
from model.config.special_pieces import BOS, EOS, SPECIAL_TOKENS, UNK
from model.errors import JobError

if TYPE_CHECKING:
    from model.decoding.sentence_splitting import SentenceSplitter
    from model.decoding.translator import Translator
    from model.export.ctranslate2_runtime import Folder

SearchEngine = Literal["auto", "own", "ctranslate2"]
OWN = "own search"


@dataclass(frozen=True)
class ServedVersion:
    """A version with its model loaded. Implements ``infra.web.protocol.ServedModel``."""

    name: str
    aliases: tuple[str, ...]
    languages: tuple[str, str]
    decoding: Decoding
    translator: Translator
    split: SentenceSplitter
    exported: Folder | None = None

    @property
    def search(self) -> SearchSettings:
        return SearchSettings(self.decoding.beam, self.decoding.alpha)

    @property
    def engine(self) -> str:
        return "CTranslate2" if self.exported else OWN

    @cached_property
    def longest(self) -> int:
        positions = [self.exported.longest] if self.exported else []
        return min([self.translator.longest_source, *positions])

    def sentences(self, line: str) -> Sequence[str]:
        return [sentence for sentence in self.split(line.strip()) if self.lengths([sentence])[0]]

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        return [len(ids) for ids in self.translator.vocabulary.encode_source([each.strip() for each in sentences])]

    def prefix_length(self, prefix: str) -> int:
        return len(self.translator.vocabulary.encode_target([prefix.strip()])[0])

    def translate(self, sources: Sequence[Source], search: SearchSettings, n_best: int) -> Sequence[Sentence]:
        decoding = replace(self.decoding, beam=search.beam, alpha=search.alpha)
        vocabulary, sampling = self.translator.vocabulary, search.sampling
        sentences = [source.text for source in sources]
        encoded = vocabulary.encode_source([sentence.strip() for sentence in sentences])
        forced = vocabulary.encode_target([source.prefix.strip() for source in sources])
        prefixes = {number: prefix for number, prefix in enumerate(forced) if prefix}
        if self.exported and not sampling and not prefixes:
            found = self._by_ctranslate2(self.exported, encoded, vars(decoding), n_best)
        else:
            if sampling:
                settings = Sampling(sampling.temperature, sampling.top_k, seed=sampling.seed)
                numbers = [source.number for source in sources]
                drawn = self.translator.sample(encoded, settings, decoding, prefixes, numbers)
                searched = [[each] for each in drawn]
            else:
                searched = self.translator.search_n_best(encoded, decoding, n_best, prefixes)
            found = [
                [self._hypothesis(h.pieces, h.log_probability, h.score, h.finished) for h in each] for each in searched
            ]
        return [
            Sentence(sentence, tuple(vocabulary.source_pieces(source)), tuple(hypotheses))
            for sentence, source, hypotheses in zip(sentences, encoded, found, strict=True)
        ]

    def maps(self, source: str, target: str | Sequence[int]) -> Mapping[AttentionKind, AttentionMap]:
        vocabulary = self.translator.vocabulary
        [read] = vocabulary.encode_source([source.strip()])
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

    def _by_ctranslate2(
        self, exported: Folder, sources: Sequence[Sequence[int]], search: Mapping[str, Any], n_best: int
    ) -> list[list[Hypothesis]]:
        vocabulary = self.translator.vocabulary
        unknown, token_to_id = SPECIAL_TOKENS[UNK], vocabulary.target.token_to_id
        tokens = [[vocabulary.source.id_to_token(number) or unknown for number in source] for source in sources]

        def hypothesis(found: Any) -> Hypothesis:
            ids = [UNK if (number := token_to_id(piece)) is None else number for piece in found.pieces]
            return self._hypothesis(ids, found.log_probability, found.score, found.finished)

        return [[hypothesis(each) for each in found[:n_best]] for found in exported.search_all(tokens, search)]

    def _hypothesis(self, ids: Sequence[int], log_probability: float, score: float, finished: bool) -> Hypothesis:
        pieces = tuple(self.translator.vocabulary.target_pieces(ids))
        return Hypothesis(self._text(ids), score, log_probability, tuple(ids), pieces, finished)

    def _text(self, ids: Sequence[int]) -> str:
        return " ".join(self.translator.vocabulary.decode_target(ids).splitlines())


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
        raise BadConfiguration("no model is registered yet: repro run demo registers one")
    each = {(version.name, version.version): version for version in found}.values()
    return list(each) if names else sorted(each, key=lambda version: PREFERRED[0] not in version.aliases)


def load_version(version: Version, site: Site, engine: SearchEngine, exports: Path) -> ServedVersion:
    """Load a version; ``exports`` is the folder of ``repro export``. Raises BadConfiguration if ``engine`` is
    ``ctranslate2`` and there is no export, BadData for damaged weights or a damaged vocabulary."""
    from model.decoding.sentence_splitting import DEFAULT_LANGUAGE, splitter
    from model.decoding.translator import Translator

    folder = local_folder(site.tracking, version)
    decoding = decoding_config(version)
    try:
        translator = Translator.load(folder / "weights", folder / "vocabulary", site.device, site.threads_each)
    except (JobError, ValueError) as error:
        raise BadData(f"{version.name}/{version.version} cannot be loaded: {error}") from error
    return ServedVersion(
        f"{version.name}/{version.version}",
        version.aliases,
        (version.tags.get("source_language", ""), version.tags.get("target_language", "")),
        decoding,
        translator,
        splitter(version.tags.get("source_language", "") or DEFAULT_LANGUAGE),
        None if engine == "own" else _find_export(version, site, engine, decoding, exports),
    )


def _find_export(
    version: Version, site: Site, engine: SearchEngine, decoding: Decoding, exports: Path
) -> Folder | None:
    """The CTranslate2 export of the version, int8 before float32; None if there is none that can be used."""
    base = f"{version.name}-{version.version}-ctranslate2"
    folders = [exports / f"{base}-int8", exports / base]
    folder = next((each for each in folders if (each / "search.json").is_file()), None)
    name, required = f"{version.name}/{version.version}", engine == "ctranslate2"
    if required and decoding.beta:
        raise BadConfiguration(f"{name} decodes with decoding.beta {decoding.beta}, which CTranslate2 does not support")
    if required and folder is None:
        raise BadConfiguration(f"{folders[1]} is not there: repro export {name} --to ctranslate2 writes it")
    if folder is None or decoding.beta:
        return None
    try:
        from model.export.ctranslate2_runtime import Folder
    except ModuleNotFoundError as error:
        if required:
            raise BadConfiguration("ctranslate2 is not installed here: pip install -e '.[ctranslate2]'") from error
        return None
    device = "cuda" if site.device == "cuda" else "cpu"
    return Folder(folder, site.threads_each, 1, device)
