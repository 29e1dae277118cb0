"""The version guard: code that decides a stage's result does not change unnoticed."""

import fingerprints


def test_stages_are_as_recorded() -> None:
    changed = fingerprints.changes()
    assert not changed, (
        "\n".join(changed)
        + "\nIf results can differ bump the stage's version; in either case: python tests/fingerprints.py --accept"
    )
