"""A trained model becomes a version of the model that is named after its run.

    version.json (name, version, aliases, uri, run_id, decision)

In come the weights, the vocabulary and what was measured; in MLflow's registry appears a version that
``mlflow.pyfunc.load_model`` loads anywhere, with its scores, their protocol and its descent as tags. Which alias it
gets is decided by the dev set alone. Nothing here knows how MLflow stores a model.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.local import Artifact, Manifest, Store
from infra.tracking.model_logging import TextModel, log_model
from infra.tracking.provenance import commit
from infra.tracking.registry import Version, create_version, set_alias, version_exists, versions
from infra.tracking.run_description import is_number
from model.config import Decoding, from_json
from tasks.engine.stage import Facts, progress, stage, stage_run_id, tracker

METRIC_TAGS = (".bleu", ".chrf", ".perplexity", "dev_bleu", "test_bleu")
"""Ends of tags that are a model's metrics too, by which MLflow's own pages sort models."""
LIBRARIES = ("torch", "numpy", "pyarrow", "tokenizers", "safetensors", "sentencex")
"""What the package ``model`` needs where a registered model is loaded."""
STAGES_WITHOUT_TAG = ("download",)
"""Stages whose many keys would bury the others among a version's tags; the keys after them depend on them."""
STAGES_WITH_DIGEST = ("prepare_sets", "clean", "learn_bpe", "average")
"""Stages whose content is what a version was made from and measured on."""


def translator_model(
    weights: Artifact, vocabulary: Artifact, decoding: Decoding, text: Mapping[str, int | str]
) -> TextModel:
    """The model as MLflow is to store it, its code the package ``model`` as it is now; ``text`` is
    ``training_text``."""
    found = find_spec("model.export.mlflow_model")
    assert found, "the package model has its pyfunc file"
    assert found.origin
    return TextModel(
        code=Path(found.origin),
        package=Path(found.origin).parents[1],
        folders={"weights": weights.path(), "vocabulary": vocabulary.path()},
        options={**{name: value for name, value in asdict(decoding).items() if is_number(value)}, "split": "always"},
        libraries=LIBRARIES,
        example=("A dog runs.",),
        config=text,
    )


def training_text(weights: Artifact) -> dict[str, int | str]:
    """What whoever translates must know of the training text, as far as its manifests are there: its languages, and
    ``max_pieces``, the longest side of a pair."""
    store = weights.store
    told: dict[str, Any] = {}
    manifest = store.manifest(weights.stage, weights.key)
    # Not any stage above: where training began with another run's weights, that run's text is above as well.
    for name in ("run", "shards", "pairs"):
        above = manifest.arguments.get(name) if manifest else None
        manifest = store.manifest(above["artifact"], above["key"]) if above else None
        if manifest:
            told |= {**manifest.arguments.get("corpus", {}), **manifest.arguments.get("sharding", {})}
    return {name: told[name] for name in ("source_language", "target_language", "max_pieces") if name in told}


def dev_decoding(made: Mapping[str, Manifest], dev: str) -> Decoding:
    """How the dev set was decoded, which is how the version is to be used."""
    found = made[f"translate.{dev}"].arguments["decoding"] if f"translate.{dev}" in made else {}
    return from_json(Decoding, {name: value for name, value in found.items() if name != "class"})


def lineage(artifacts: Iterable[Artifact]) -> dict[str, Manifest]:
    """Manifests of the artifacts and of all they were made from, by stage and item, as far as they still lie there."""
    found: dict[str, Manifest] = {}
    for artifact in artifacts:
        _collect_lineage(artifact.store, artifact.stage, artifact.key, found)
    return found


def _collect_lineage(store: Store, stage: str, key: str, found: dict[str, Manifest]) -> None:
    manifest = store.manifest(stage, key)
    if manifest is None:
        return
    name = f"{stage}.{manifest.item}" if manifest.item else stage
    if name in found:
        return
    found[name] = manifest
    for made_from in manifest.inputs:
        above, _, its_key = made_from.partition("/")
        _collect_lineage(store, above, its_key, found)


def version_tags(
    scores: Mapping[str, Artifact], sets: Mapping[str, Artifact], dev: str, made: Mapping[str, Manifest]
) -> dict[str, str]:
    """What a version says of itself: every score of every set, what it is compared by, its keys, digests and commits.

    Raises BadConfiguration where the dev set has no BLEU.
    """
    if dev not in scores or not is_number(scores[dev].facts.get("bleu")):
        raise BadConfiguration(f"dev is {dev!r}, allowed is a set with a BLEU score: {', '.join(scores) or 'none'}")
    tags = {f"{name}.{fact}": f"{value}" for name, card in scores.items() for fact, value in card.facts.items()}
    facts = scores[dev].facts
    # A digest of the references outlives a change of the library that writes the set's file.
    digest = facts.get("references_sha256") or sets[dev].content
    tags |= {"dev_set": dev, "dev_bleu": f"{facts['bleu']}", "dev_digest": f"{digest}"}
    tags |= {"dev_signature": f"{facts.get('signature', '')}", "git_commit": commit()}
    # Under one name for all runs, so that whoever lists versions can sort by it.
    if test := next((name for name, card in scores.items() if name != dev and is_number(card.facts.get("bleu"))), ""):
        tags |= {"test_set": test, "test_bleu": f"{scores[test].facts['bleu']}"}
    for name, manifest in made.items():
        if manifest.stage not in STAGES_WITHOUT_TAG:
            tags[f"key.{name}"] = manifest.key
        if manifest.stage in STAGES_WITH_DIGEST:
            tags[f"digest.{name}"] = manifest.content
    tags |= {f"decoding.{name}": json.dumps(value) for name, value in asdict(dev_decoding(made, dev)).items()}
    if "train" in made:
        tags["git_commit.train"] = f"{made['train'].made.get('commit', '')}"
    return tags


def becomes_champion(tags: Mapping[str, str], champion: Version | None) -> tuple[bool, str]:
    """Whether a version with these tags becomes champion, and why: by BLEU (13a, cased) on the same dev set alone."""
    own = f"dev BLEU {float(tags['dev_bleu']):.2f} on {tags['dev_set']}"
    if champion is None:
        return True, f"{own}, the first champion"
    theirs = champion.tags.get("dev_digest", "")
    if theirs != tags["dev_digest"]:
        return False, f"the champion, version {champion.version}, was measured on another dev set: {own} says nothing"
    best = float(champion.tags["dev_bleu"])
    if float(tags["dev_bleu"]) >= best:
        return True, f"{own}, not below the {best:.2f} of version {champion.version}"
    return False, f"{own}, below the {best:.2f} of version {champion.version}"


def register_version(
    uri: str,
    run_id: str,
    name: str,
    model: TextModel,
    tags: Mapping[str, str],
    modified: bool,
    experiment_id: str = "",
) -> dict[str, Any]:
    """Log the model with the run and make it the next version of ``name``; gives what ``version.json`` holds.

    The version is made when its model is stored whole, with all its tags at once. Unless ``modified``, the alias
    candidate moves to it, and champion if ``becomes_champion`` says so; each move is a tag that says when and why.
    """
    before = versions(uri, name)
    champion = next((version for version in before if "champion" in version.aliases), None)
    better, why = becomes_champion(tags, champion)
    decision = "a run with overrides moves no alias" if modified else f"{'' if better else 'not '}champion: {why}"
    told = {**tags, "modified": f"{modified}".lower(), "decision": decision}
    version = next((known for known in before if known.run_id == run_id), None)  # of a try that was cut off
    if version is None:
        metrics = {key: float(value) for key, value in tags.items() if key.endswith(METRIC_TAGS)}
        model_id = log_model(uri, run_id, name, model, metrics)
        page = f"#/experiments/{experiment_id}/runs/{run_id}"
        version = create_version(
            uri, name, model_id, run_id, told, version_description(name, told, page if experiment_id else "")
        )
    aliases = []
    if not modified:
        set_alias(uri, version, "candidate", "the newest run without overrides")
        aliases.append("candidate")
        if better:
            set_alias(uri, version, "champion", why)
            aliases.append("champion")
    return {
        "name": name,
        "version": version.version,
        "aliases": aliases,
        "uri": uri,
        "run_id": run_id,
        "decision": decision,
    }


def version_description(name: str, tags: Mapping[str, str], page: str = "") -> str:
    """The version's page, in Markdown: scores by set with their protocol, how to use it, why it has its aliases, and
    links to its report and to ``page``, the run that made it."""
    sets = [key.removesuffix(".bleu") for key in tags if key.endswith(".bleu")]
    lines = ["| set | BLEU (13a, cased) | chrF | perplexity | sentences |", "|---|---:|---:|---:|---:|"]
    for each in sets:
        cells = (_rounded(tags.get(f"{each}.{fact}", "")) for fact in ("bleu", "chrf", "perplexity"))
        label = f"{each} (dev)" if each == tags["dev_set"] else each
        lines.append(f"| {label} | {' | '.join(cells)} | {tags.get(f'{each}.sentences', '')} |")
    lines += ["", f"Protocol: `{tags['dev_signature']}`", "", f"Decision: {tags['decision']}", ""]
    if page:
        lines += [f"[Report]({page}/artifacts/report/report.html) · [source run]({page})", ""]
    return "\n".join([*lines, f"`repro translate --model {name}@candidate < in > out`"])


def _rounded(number: str) -> str:
    try:
        return f"{float(number):.2f}"
    except ValueError:
        return number


def _report_files(report: Artifact) -> Iterator[Path]:
    yield from (path for path in sorted(report.path().iterdir()) if path.suffix in (".html", ".png"))


def _still_registered(made: Artifact, site: Site) -> bool:
    """Whether the version is in the site's registry."""
    try:
        said = json.loads((made.path() / "version.json").read_text())
        return version_exists(site.registry, said["name"], said["version"], said["run_id"])
    except (OSError, ValueError, KeyError):
        return False


@stage(version=1, retries=3, still_valid=_still_registered)
def register(
    out: Path,
    run_name: str,
    weights: Artifact,
    vocabulary: Artifact,
    report: Artifact,
    scores: Mapping[str, Artifact],
    sets: Mapping[str, Artifact],
    dev: str,
    modified: bool,
) -> Facts:
    """Register the model with its scores; move the aliases it has earned."""
    record = tracker()
    run_id = record.resolve_run_id(stage_run_id())
    progress(0, 3, "report")
    record.log_artifacts(run_id, _report_files(report), "report")
    made = lineage([weights, vocabulary, *scores.values(), *sets.values()])
    for name, pairs in sets.items():
        profile = {"pairs": pairs.facts.get("pairs", 0)}
        record.log_input(
            run_id, "dev" if name == dev else "test", name, pairs.content, f"prepare_sets/{pairs.key}", profile
        )
    progress(1, 3, "model")
    text = training_text(weights)
    tags = version_tags(scores, sets, dev, made) | {name: f"{value}" for name, value in text.items()}
    model = translator_model(weights, vocabulary, dev_decoding(made, dev), text)
    registered = register_version(record.uri, run_id, run_name, model, tags, modified, record.experiment_id)
    (out / "version.json").write_text(json.dumps(registered, indent=1, ensure_ascii=False) + "\n")
    progress(3, 3, f"{run_name}/{registered['version']}")
    return {
        "name": run_name,
        "version": registered["version"],
        "aliases": ", ".join(registered["aliases"]),
        "decision": registered["decision"],
    }
