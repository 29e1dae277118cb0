"""The beam search of ``Translator.search_n_best`` by CTranslate2, over the same vocabulary of token ids."""

from collections.abc import Sequence
from pathlib import Path

from ..config import Decoding
from ..config.special_pieces import UNK
from ..data.bpe import TokenizerPair
from ..decoding.translation import Hypothesis
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

    def search_n_best(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, n_best: int
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` hypotheses of each source, best first; sources are tokens without eos."""
        pieces = self.pieces
        found = self.folder.search_all([[pieces[number] for number in source] for source in sources], decoding.search())
        return [[self._hypothesis(each) for each in best[:n_best]] or [EMPTY_HYPOTHESIS] for best in found]

    def longest_output(self, source: int, decoding: Decoding) -> int:
        """Tokens of the longest output for a source of ``source`` tokens, eos counted in both."""
        return min(decoding.lengths(source)[1], self.folder.positions)

    def _hypothesis(self, found: Found) -> Hypothesis:
        ids = tuple(self.ids.get(piece, UNK) for piece in found.pieces)
        return Hypothesis(ids, len(ids) + found.finished, found.log_probability, found.score, found.finished)
