"""A filter by language identification: about a hundred languages, where ``filters.Language`` knows a few.

Needs the extra ``language-id``: py3langid, whose wheel contains its model, so that nothing is downloaded. It reads
about 30,000 lines per second and core: several times slower than all other rules together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from infra.extras import check_installed
from model.config.keying import require
from tasks.cleaning.filters import SIDES, _NamedFilter
from tasks.lazy_libraries import pl


@dataclass(frozen=True)
class Identified(_NamedFilter):
    """Removes pairs with a side that is in another language with a probability of at least ``sure``. Sides under
    ``least`` characters, whose language cannot be identified, pass. For crawled text and mixtures. The result also
    depends on the version of py3langid, which contains the model. Languages are ISO 639-1 codes."""

    source: str
    target: str
    sure: float = 0.9
    least: int = 20

    def __post_init__(self) -> None:
        for side in SIDES:
            code = getattr(self, side)
            require(len(code) == 2 and code.isalpha(), f"identified.{side}", code, "a code of two letters")
        require(0 < self.sure <= 1, "identified.sure", self.sure, "above 0 up to 1")
        require(self.least >= 0, "identified.least", self.least, "a whole number of characters of at least 0")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(self._own(side, getattr(self, side)) for side in SIDES)

    def _own(self, side: str, code: str) -> pl.Expr:
        def matches(lines: pl.Series) -> pl.Series:
            return pl.Series(lines.name, [self._may_be(line, code) for line in lines], dtype=pl.Boolean)

        return pl.col(side).map_batches(matches, return_dtype=pl.Boolean, is_elementwise=True)

    def _may_be(self, line: str, code: str) -> bool:
        if len(line) < self.least:
            return True
        found, probability = _identifier().classify(line)
        return bool(found == code or probability < self.sure)


@cache
def _identifier() -> Any:
    check_installed("py3langid", "the rule Identified")
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
