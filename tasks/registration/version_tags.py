"""The tags and the Markdown description of a model version."""

import json
from collections.abc import Mapping

from infra.errors import BadConfiguration
from infra.store.local import Artifact
from infra.store.manifest import Manifest
from infra.tracking.provenance import commit
from infra.tracking.run_description import is_number
from tasks.registration.lineage import dev_decoding

STAGES_WITHOUT_TAG = ("download",)
"""Stages with so many keys that the other tags would be hard to find; the keys of later stages depend on them."""
STAGES_WITH_DIGEST = ("prepare_sets", "clean", "learn_bpe", "average")
"""Stages whose content a version was made from or measured on."""


def version_tags(
    scores: Mapping[str, Artifact], sets: Mapping[str, Artifact], dev: str, manifests: Mapping[str, Manifest]
) -> dict[str, str]:
    """Every score of every set, the dev set's digest, and the keys, content digests and commits of the lineage.

    Raises BadConfiguration when the dev set has no BLEU.
    """
    if dev not in scores or not is_number(scores[dev].facts.get("bleu")):
        raise BadConfiguration(f"dev is {dev!r}, allowed is a set with a BLEU score: {', '.join(scores) or 'none'}")
    tags = {f"{name}.{fact}": f"{value}" for name, card in scores.items() for fact, value in card.facts.items()}
    facts = scores[dev].facts
    # A digest of the references stays the same when a library writes the set's file differently.
    digest = facts.get("references_sha256") or sets[dev].content
    tags |= {"dev_set": dev, "dev_bleu": f"{facts['bleu']}", "dev_digest": f"{digest}"}
    tags |= {"dev_signature": f"{facts.get('signature', '')}", "git_commit": commit()}
    # The same name in all runs, so that versions can be sorted by it.
    if test := next((name for name, card in scores.items() if name != dev and is_number(card.facts.get("bleu"))), ""):
        tags |= {"test_set": test, "test_bleu": f"{scores[test].facts['bleu']}"}
    for name, manifest in manifests.items():
        if manifest.stage not in STAGES_WITHOUT_TAG:
            tags[f"key.{name}"] = manifest.key
        if manifest.stage in STAGES_WITH_DIGEST:
            tags[f"digest.{name}"] = manifest.content
    tags |= {f"decoding.{name}": json.dumps(value) for name, value in dev_decoding(manifests, dev).search().items()}
    if "train" in manifests:
        tags["git_commit.train"] = f"{manifests['train'].made.get('commit', '')}"
    return tags


def version_description(name: str, tags: Mapping[str, str], page: str = "") -> str:
    """Markdown: scores by set with their protocol, the decision on the champion, how to use the version.

    ``page``, if any, is the URL of the run that made the version; the description links to it and to its report.
    """
    sets = [key.removesuffix(".bleu") for key in tags if key.endswith(".bleu")]
    columns = {"bleu": "BLEU (13a, cased)", "bleu_paper": "BLEU (paper)", "chrf": "chrF", "perplexity": "perplexity"}
    facts = [fact for fact in columns if any(f"{each}.{fact}" in tags for each in sets)]
    lines = [
        f"| set | {' | '.join(columns[fact] for fact in facts)} | sentences |",
        "|---" + "|---:" * (len(facts) + 1) + "|",
    ]
    for each in sets:
        scores = (_rounded(tags.get(f"{each}.{fact}", "")) for fact in facts)
        label = f"{each} (dev)" if each == tags["dev_set"] else each
        lines.append(f"| {label} | {' | '.join(scores)} | {tags.get(f'{each}.sentences', '')} |")
    lines += ["", f"Protocol: `{tags['dev_signature']}`", "", f"Decision: {tags['decision']}", ""]
    changed = {tag.removeprefix("changed."): value for tag, value in tags.items() if tag.startswith("changed.")}
    lines += [f"- {stage} was made before its {change}" for stage, change in changed.items()] + [""] * bool(changed)
    adopted = {tag.removeprefix("adopted."): value for tag, value in tags.items() if tag.startswith("adopted.")}
    lines += [f"- {stage} was {origin}" for stage, origin in adopted.items()] + [""] * bool(adopted)
    if page:
        lines += [f"[Report]({page}/artifacts/report/report.html) · [source run]({page})", ""]
    return "\n".join([*lines, f"`repro translate --model {name}@candidate < in > out`"])


def _rounded(number: str) -> str:
    try:
        return f"{float(number):.2f}"
    except ValueError:
        return number
