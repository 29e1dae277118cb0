"""The version guard: code that decides a stage's result does not change unnoticed."""

import ast

import fingerprints


def test_stages_are_as_recorded() -> None:
    changed = fingerprints.changes()
    assert not changed, (
        "\n".join(changed)
        + "\nIf results can differ bump the stage's version; in either case: python tests/fingerprints.py --accept"
    )


def test_the_guard_follows_imports_and_launched_jobs_only() -> None:
    modules = fingerprints.fingerprints()["train"]["modules"]
    assert {"tasks.train", "model.train", "model.transformer", "model.config"} <= set(modules)
    assert not {"tasks.stage", "tasks.clean", "model.average"} & set(modules)


def test_comments_and_docstrings_do_not_count() -> None:
    tree = fingerprints.syntax("tasks.train")
    assert "Train a Transformer" not in ast.dump(tree)
