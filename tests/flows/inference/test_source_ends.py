"""A run with other special tokens around its sources shows them wherever it shows what a source is read as."""

import json
from pathlib import Path

import pytest
from small_pipeline import run_small

from flows.inference.load_version import load_version
from flows.inspection.trace import find_made, trace
from flows.runner.request import RunRequest, make_plan
from infra.site import Site
from infra.tracking.registry import resolve
from model.config.special_pieces import BOS, EOS, SPECIAL_TOKENS


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "before", "after"), [("none", (), ()), ("bos+eos", (BOS,), (EOS,))])
def test_a_run_reads_its_sources_alike_everywhere(
    small: Path, ends: str, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    first, last = ([SPECIAL_TOKENS[token] for token in tokens] for tokens in (before, after))
    request = RunRequest("small", overrides=(f"model.source_ends={ends}",))
    outcome = run_small(request)
    assert outcome.model_version == "small/2"
    states = {row.stage: row.state for row in outcome.rows}
    assert states["shard"] == "cached", "the shards hold no special tokens"
    assert states["train"] == "completed"
    site = Site.named()
    resolved = request.resolve()
    found = find_made(make_plan(resolved))
    examples = json.loads((found.made["translate", "dev"].path() / "attention.json").read_text())
    traced = trace(resolved.run, site, found, examples[0]["pair_id"])
    (decoded,) = (step for step in traced.steps if step.kind == "decoded")
    assert decoded.values["source_pieces"] == examples[0]["source_pieces"]
    served = load_version(resolve(site.tracking, "small/2"), site, "own")
    [sentence] = served.sentences("The old woman sees a dog.")
    pieces = served.translator.vocabulary.source_pieces(served.translator.vocabulary.encode_source([sentence])[0])
    assert list(served.attention(sentence, "Ein Hund.")["cross"].columns) == [*first, *pieces, *last]
    shown = examples[0]["source_pieces"]
    assert (shown[0] == SPECIAL_TOKENS[BOS], shown[-1] == SPECIAL_TOKENS[EOS]) == (bool(before), bool(after))
