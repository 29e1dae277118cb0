"""The beam search of ``Translator.search_n_best`` by CTranslate2, over the same vocabulary of token ids."""

from collections.abc import Sequence
from pathlib import Path

from ..config.special_pieces import UNK
from ..data.bpe import TokenizerPair
from ..decoding.translation import Hypothesis, Search
from ..decoding.translator import EMPTY_HYPOTHESIS
from .ctranslate2 import names
from .ctranslate2_runtime import Folder, Found


class CTranslate2Search:
    """A loaded CTranslate2 folder that reads and writes token ids."""

    def __init__(
        self, folder: Path, vocabulary: TokenizerPair, threads: int = 1, workers: int = 1, device: str = "cpu"
    ) -> None:
        """``workers`` batches are searched at once, each by ``threads`` threads."""
        self.folder = Folder(folder, threads, workers, device)
        self.pieces = names(vocabulary.source)
        self.ids = {piece: number for number, piece in enumerate(names(vocabulary.target))}

    def search_n_best(self, sources: Sequence[Sequence[int]], search: Search) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first; sources are tokens without eos."""
        asked = [[self.pieces[number] for number in source] for source in sources]
        found = self.folder.search_all(asked, search.decoding.search())
        return [[self._hypothesis(each) for each in best[: search.n_best]] or [EMPTY_HYPOTHESIS] for best in found]

    def can_search(self, source: Sequence[int], search: Search) -> bool:
        """Whether there are positions for the longest output that the search allows for a source."""
        return search.decoding.lengths(len(source) + 1)[1] <= self.folder.positions

    def _hypothesis(self, found: Found) -> Hypothesis:
        ids = tuple(self.ids.get(piece, UNK) for piece in found.pieces)
        return Hypothesis(ids, len(ids) + found.finished, found.log_probability, found.score, found.finished)
