"""Long lines in another language leave; short ones, and what the model doubts, stay."""

import polars as pl
import pytest

from tasks.cleaning.language_id import Identified

ENGLISH = "The committee has decided to postpone the vote until next week."
GERMAN = "Der Ausschuss hat beschlossen, die Abstimmung auf nächste Woche zu verschieben."
DUTCH = "De commissie heeft besloten de stemming uit te stellen tot volgende week."


def test_a_language_is_known_by_its_letters() -> None:
    pytest.importorskip("py3langid")
    pairs = [(ENGLISH, GERMAN), (GERMAN, ENGLISH), (ENGLISH, DUTCH), ("Oui.", "Non."), ("", GERMAN)]
    frame = pl.DataFrame(pairs, schema=["source", "target"], orient="row")
    assert frame.select(Identified("en", "de").keep()).to_series().to_list() == [True, False, False, True, True]
