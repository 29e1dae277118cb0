"""The version guard: code that decides a stage's result does not change unnoticed."""

import ast

import fingerprints

from tasks.engine.stage_code import CodeIndex, module_file, syntax


def test_stages_are_as_recorded() -> None:
    changed = fingerprints.changes()
    assert not changed, (
        "\n".join(changed)
        + "\nIf results can differ bump the stage's version; in either case: python tests/fingerprints.py --accept"
    )


def test_the_guard_follows_imports_and_launched_jobs_only() -> None:
    modules = fingerprints.fingerprints()["train"]["modules"]
    assert {"tasks.stages.train", "model.train", "model.network.transformer", "model.config"} <= set(modules)
    assert not {"tasks.stages.clean", "model.average"} & set(modules)
    assert not [module for module in modules if module.startswith(("infra", "tasks.engine"))]


def test_the_guard_follows_relative_imports() -> None:
    index = CodeIndex(None)
    assert {"model.config", "model.config.keying"} <= index.reached("model.network.linear") | (
        index.reached("model.training.loss")
    )
    assert "model.data.batches" in index.reached("model.training.validation")


def test_a_page_beside_a_module_counts() -> None:
    file = module_file("tasks.stages.report")
    assert file
    assert file.with_suffix(".html").is_file()


def test_comments_and_docstrings_do_not_count() -> None:
    file = module_file("tasks.stages.train")
    assert file
    assert "Train a Transformer" not in ast.dump(syntax(file))
