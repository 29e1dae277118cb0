"""COMET scores (Rei et al. 2020) by a checkpoint that the user has: ``--set comet.path=… --set comet.sha256=…``.

unbabel-comet requires older libraries than this project (numpy below 2), so it runs as a program of its own: ``python``
is the interpreter of an environment with unbabel-comet. It loads the checkpoint and whatever the checkpoint names.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, BadData
from infra.processes import signals
from infra.processes.children import die_with_parent
from model.config.keying import require, unkeyed
from tasks.evaluation.translation_metrics import mean_score
from tasks.lazy_libraries import np

PROGRAM = """
import json, sys
from importlib.metadata import version
from comet import load_from_checkpoint
request = json.load(sys.stdin)
model = load_from_checkpoint(request["checkpoint"])
prediction = model.predict(request["samples"], batch_size=16, gpus=0, progress_bar=False)
answer = {"scores": [float(score) for score in prediction.scores], "version": version("unbabel-comet")}
print("\\n" + json.dumps(answer))
"""
"""Reads the samples from stdin and writes the scores on the last line of stdout."""


@dataclass(frozen=True)
class Comet:
    """A checkpoint of COMET; with an empty ``path`` it is not run. Only its checksum enters keys."""

    path: str = unkeyed("")
    """The checkpoint's file; empty: COMET is not run."""
    sha256: str = ""
    """The checkpoint's sha256, 64 hex digits."""
    python: str = unkeyed("")
    """The interpreter that has unbabel-comet; empty: that of this process."""

    def __post_init__(self) -> None:
        digits = len(self.sha256) == 64 and set(self.sha256) <= set("0123456789abcdef")
        wanted = "the 64 hex digits of the checkpoint's sha256, where comet.path is set"
        require(digits if self.path else not self.sha256, "comet.sha256", self.sha256, wanted)


def comet_score(
    comet: Comet, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """The entry of the score card: the mean over sentences times 100, with its bootstrap interval.

    Raises BadConfiguration for a checkpoint that is not the one named or a program that fails, BadData for scores that
    are not one finite number per sentence.
    """
    checkpoint = Path(comet.path)
    try:
        with checkpoint.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadConfiguration(f"comet.path is {comet.path!r}, which cannot be read: {error.strerror}") from error
    if digest != comet.sha256:
        raise BadConfiguration(f"comet.sha256 is {comet.sha256}, but {comet.path} has {digest}")
    sides = zip(sources, hypotheses, references, strict=True)
    samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in sides]
    answer = _run(comet.python or sys.executable, {"checkpoint": str(checkpoint.absolute()), "samples": samples})
    scores = 100 * np.array(answer["scores"], dtype=np.float64)
    if scores.shape != (len(samples),) or not np.isfinite(scores).all():
        raise BadData(f"COMET gave {len(scores)} scores, allowed is one finite number for each of {len(samples)} pairs")
    protocol = "COMET of source, hypothesis and reference, times 100"
    return mean_score(scores, protocol, f"unbabel-comet:{answer['version']}|checkpoint:{comet.sha256[:16]}")


def _run(python: str, request: dict[str, Any]) -> dict[str, Any]:
    """Run the program, which ends with this process and when the run is interrupted."""
    # From a file: Python 3.11 sends no more of its input when ``communicate`` is called again after a timeout.
    with tempfile.TemporaryFile("w+") as stdin:
        json.dump(request, stdin)
        stdin.seek(0)
        streams: dict[str, Any] = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            process = subprocess.Popen([python, "-c", PROGRAM], text=True, preexec_fn=die_with_parent(), **streams)
        except OSError as error:
            raise BadConfiguration(f"comet.python is {python!r}, which does not start: {error.strerror}") from error
    with process:
        try:
            out, errors = _output(process)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        last = (errors.strip().splitlines() or ["no message"])[-1]
        hint = "; comet.python names an interpreter with unbabel-comet" if "No module named 'comet'" in last else ""
        raise BadConfiguration(f"COMET failed under {python}: {last}{hint}")
    try:
        answer: dict[str, Any] = json.loads(out.strip().rpartition("\n")[2])
    except ValueError:
        raise BadConfiguration(f"comet.python is {python!r}, allowed is a Python that has unbabel-comet") from None
    return answer


def _output(process: subprocess.Popen[str]) -> tuple[str, str]:
    while True:
        try:
            return process.communicate(timeout=signals.POLL_SECONDS)
        except subprocess.TimeoutExpired:
            signals.check()
