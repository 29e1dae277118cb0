"""Reads tables of data beside the code: tab-separated, the first row names the columns."""

import csv
from pathlib import Path


def read_table(file: Path) -> list[dict[str, str]]:
    """The rows, each as a dict from column to text; "" for an empty cell."""
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened, delimiter="\t"))
