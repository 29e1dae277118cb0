"""The choice of the engine that searches for translations. Needs neither torch nor CTranslate2."""

from typing import Literal

EngineChoice = Literal["auto", "own", "ctranslate2"]
Quantization = Literal["float32", "int8"]
"""The type of CTranslate2's matrices."""
COMPARED = 100
"""Sentences of the dev set by which the engines are compared."""
