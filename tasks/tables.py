"""Tables of data that lie beside the code that reads them: tab-separated, the first row names the columns."""

import csv
from pathlib import Path


def read_table(file: Path) -> list[dict[str, str]]:
    """The rows by column; an empty text where a row has none."""
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened, delimiter="\t"))
