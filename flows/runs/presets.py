"""Named settings from ``presets.toml``: published reproductions and cleaning profiles, as assignments for ``--set``."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

NAMED: Mapping[str, Mapping[str, Sequence[str]]] = tomllib.loads(Path(__file__).with_name("presets.toml").read_text())
"""The assignments of each ``preset=NAME`` and ``profile=NAME``; presets apply before profiles."""
