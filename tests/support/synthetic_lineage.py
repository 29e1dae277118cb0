"""Sealed artifacts of synthetic pairs: the pairs, their translations, and the models that made these."""

from io import BytesIO
from typing import Any

import polars as pl
from sealing import sealed

from infra.store.store import Artifact, Store

CLEANED = [("c:0", "A cat.", "Eine Katze."), ("c:1", "A dog.", "Ein Hund."), ("c:2", "Rain.", "Regen.")]
BACK = [("bt-news:7", "<BT> a <b>", "Ein <b>."), ("bt-news:3", "<BT> snow", "Schnee.")]
TAUGHT = [("c:1", "A dog.", "Der Hund."), ("c:0", "A cat.", "Katze.")]
NOTHING = {"a": b""}


def parquet(rows: list[tuple[str, str, str]]) -> dict[str, bytes]:
    """A file of pairs."""
    file = BytesIO()
    pl.DataFrame(rows, ["pair_id", "source", "target"], orient="row").write_parquet(file)
    return {"pairs.parquet": file.getvalue()}


def sealed_as(
    store: Store, stage: str, key: str, arguments: dict[str, Any], files: dict[str, bytes] = NOTHING, **facts: Any
) -> Artifact:
    """An artifact whose inputs are those among its arguments."""
    values = [each for value in arguments.values() for each in (value if isinstance(value, list) else [value])]
    inputs = {
        f"{each['artifact']}/{each['key']}": "" for each in values if isinstance(each, dict) and "artifact" in each
    }
    item = "monolingual" if key == "monolingual" else ""
    return sealed(store, key, files, stage=stage, item=item, arguments=arguments, inputs=inputs, facts=facts)


def named(artifact: Artifact) -> dict[str, str]:
    """An artifact as an argument of a stage."""
    return {"artifact": artifact.stage, "key": artifact.key}


def model(store: Store, seed: int, perplexity: float) -> dict[str, str]:
    """Averaged weights of a training."""
    training = {"training": {"seed": seed}}
    train = sealed_as(store, "train", f"train{seed}", training, dev_perplexity=perplexity)
    return named(sealed_as(store, "average", f"average{seed}", {"run": named(train)}))


def cleaned(store: Store, key: str = "cleaned", name: str = "pairs & more") -> Artifact:
    corpus = {"name": name, "source_language": "en", "target_language": "de", "parts": [{"name": key}]}
    return sealed_as(store, "clean", key, {"corpus": corpus}, parquet(CLEANED), pairs=3)


def mixed(store: Store, tag: str = "<BT>", **how: Any) -> Artifact:
    """Two pairs of back-translation behind three of the corpus."""
    text = named(cleaned(store, "monolingual", "news-de"))
    arguments = {"weights": model(store, 3, 7.25), "text": text, "decoding": {"beam": 6}, **how}
    translated = sealed_as(store, "translate_text", "t", arguments, lines=3)
    arguments = {"pairs": named(cleaned(store)), "translated": named(translated), "tag": tag}
    return sealed_as(store, "mix", "m", arguments, parquet(CLEANED + BACK), pairs=5, synthetic=2, untranslated=1)


def distilled(store: Store, **facts: object) -> Artifact:
    """Two pairs by two teachers; ``facts`` replace those of ``extract_best``."""
    pairs, teachers = named(cleaned(store)), [model(store, 1, 5.5), model(store, 2, 6.5)]
    arguments = {"weights": teachers[0], "others": teachers[1:], "text": pairs, "decoding": {"beam": 4}, "n_best": 3}
    translated = sealed_as(store, "translate_text", "t", arguments, lines=3)
    arguments = {"pairs": pairs, "translated": named(translated)}
    facts = {"pairs": 2, "untranslated": 1, "bleu": 41.26, **facts}
    return sealed_as(store, "extract_best", "b", arguments, parquet(TAUGHT), **facts)
