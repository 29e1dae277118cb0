"""The bill of materials names every installed package once, with its version, in CycloneDX's format."""

import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from infra.tracking import sbom
from infra.tracking.sbom import environment_sbom


def test_every_installed_package_is_listed_once_with_its_version() -> None:
    bill = json.loads(json.dumps(environment_sbom()))
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"]["name"] == "attention-repro"
    listed = {each.get("purl"): each for each in bill["components"]}
    for name in ("torch", "polars", "mlflow", "pytest"):
        assert listed[f"pkg:pypi/{name}@{version(name).replace('+', '%2B')}"]["version"] == version(name)
    references = [each["bom-ref"] for each in (*bill["components"], bill["metadata"]["component"])]
    assert len(references) == len(set(references))


def test_a_package_that_is_installed_twice_counts_as_the_imported_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name, number in (
        ("first", "Some_Thing", "2.0+cpu"),
        ("second", "Some_Thing", "1.0"),
        ("first", "attention_repro", "0.3"),
    ):
        info = tmp_path / folder / f"{name}.dist-info"
        info.mkdir(parents=True)
        words = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {number}", "License-Expression: MIT"]
        (info / "METADATA").write_text("\n".join(words))
    found = sbom.distributions
    monkeypatch.setattr(sbom, "distributions", lambda: found(path=[str(tmp_path / "first"), str(tmp_path / "second")]))
    bill = environment_sbom()
    project = bill["metadata"]["component"]
    assert (project["type"], project["name"], project["version"]) == ("application", "attention_repro", "0.3")
    (only,) = [each for each in bill["components"] if each["type"] == "library"]
    assert only == {
        "type": "library",
        "bom-ref": "pkg:pypi/some-thing@2.0%2Bcpu",
        "name": "Some_Thing",
        "version": "2.0+cpu",
        "purl": "pkg:pypi/some-thing@2.0%2Bcpu",
        "licenses": [{"expression": "MIT"}],
    }
