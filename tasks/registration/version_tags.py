"""The tags and the Markdown description of a model version."""

import json
from collections.abc import Mapping, Sequence

from infra.errors import BadConfiguration
from infra.store.manifest import Manifest
from infra.store.store import Artifact
from infra.tracking.model_version import HEADLINES, finite, headline, headline_signature, scored_sets, tags_below
from infra.tracking.provenance import commit
from infra.tracking.run_description import is_number, mlflow_name, table
from model.metric_names import BLEU, DEV_BLEU, TEST_BLEU
from tasks.corpus.catalogue import NOISE
from tasks.registration.lineage import dev_decoding
from tasks.registration.model_card import score_table, scores_in_tags

UNCHANGED = "as defined"
"""Shown instead of settings for a version of a run without overrides."""
STAGES_WITH_DIGEST = ("prepare_sets", "clean", "learn_bpe", "average")
"""Stages whose content a version was made from or measured on."""


def version_tags(scores: Mapping[str, Artifact], dev: str, manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Every score of every set, the dev set's digest, and the keys, content digests and commits of the lineage.

    Raises BadConfiguration when the dev set has no BLEU.
    """
    if dev not in scores or not is_number(scores[dev].facts.get(BLEU)):
        raise BadConfiguration(f"dev is {dev!r}, allowed is a set with a BLEU score: {', '.join(scores) or 'none'}")
    tags = {f"{name}.{fact}": f"{value}" for name, card in scores.items() for fact, value in card.facts.items()}
    facts = scores[dev].facts
    # Not the content of the set: it changes when a library writes the file differently.
    tags |= {"dev_set": dev, DEV_BLEU: f"{facts[headline(facts)]}", "dev_digest": facts["references_sha256"]}
    tags |= {"dev_signature": f"{facts.get('signature', '')}", "git_commit": commit()}
    # The same name in all runs, so that versions can be sorted by it.
    tests = (name for name, card in scores.items() if name != dev and is_number(card.facts.get(BLEU)))
    if test := next((name for name in tests if NOISE not in name), ""):
        tags |= {"test_set": test, TEST_BLEU: f"{scores[test].facts[headline(facts)]}"}
    for name, manifest in manifests.items():
        if manifest.stage != "download":  # its many keys would hide the other tags
            tags[f"key.{name}"] = manifest.key
        if manifest.stage in STAGES_WITH_DIGEST:
            tags[f"digest.{name}"] = manifest.content
    for name, value in dev_decoding(manifests, dev).search().items():
        tags[f"decoding.{name}"] = value if isinstance(value, str) else json.dumps(value)
    if "train" in manifests:
        tags["git_commit.train"] = f"{manifests['train'].made.get('commit', '')}"
    return tags


def version_description(labels: Sequence[str], tags: Mapping[str, str]) -> str:
    """Markdown about a version; its first line, without markup, begins with what differs from the run's own settings.

    ``labels`` are the version (``demo/3``) and the champion that it was compared with, if any. The tag ``report`` is
    the address of the run's report in MLflow's UI or empty.
    """
    version = labels[0]
    scores = scores_in_tags(tags)
    metric = headline(*scores.values())
    bleu = ", ".join(f"{name} {float(facts[metric]):.2f}" for name, facts in scores.items())
    head, *rows = score_table(scores, tags["dev_set"])
    report = tags.get("report", "")
    parts = [
        # MLflow's list of versions shows the first 32 characters as plain text.
        f"{tags.get('settings') or UNCHANGED} · {HEADLINES[metric]} {bleu}",
        table(head, rows),
        f"Protocol: `{headline_signature(tags['dev_signature'], metric)}`",
        f"Decision when it was registered: {tags['decision']}",
        f"[Report]({report})" if report else "",
        f"Lineage: `repro show {version}`",
        f"`repro translate --model {version} < in > out`",
        f"`repro compare {' '.join(labels)}`" if len(labels) > 1 else "",
        "\n".join(f"- {stage} was made before its {change}" for stage, change in tags_below(tags, "changed.").items()),
    ]
    return "\n\n".join(filter(None, parts))


def model_metrics(tags: Mapping[str, str]) -> dict[str, float]:
    """Every score as a metric of the model, by MLflow's name."""
    prefixes = tuple(f"{name}." for name in scored_sets(tags))
    values = {
        tag: finite(text) for tag, text in tags.items() if tag in (DEV_BLEU, TEST_BLEU) or tag.startswith(prefixes)
    }
    return {mlflow_name(tag): value for tag, value in values.items() if value is not None}


def model_description(name: str, tags: Mapping[str, str]) -> str:
    """The description of a registered model, from the tags of its first version.

    The model has no tags: MLflow would show them on half of the screen, above the list of versions.
    """
    source = tags.get("source_language")
    target = tags.get("target_language")
    pair = f" from {source} into {target}" if source and target else ""
    return (
        f"A Transformer that translates text{pair}, made by `repro run {name}`. `candidate` is the newest version"
        " without overrides, `champion` the best on the dev set, beyond noise."
    )
