"""The artifact of a download holds its file and nothing else."""

from pathlib import Path

from tasks.corpus.catalogue import CORPORA, files
from tasks.demo import corpus
from tasks.stages.download import download


def test_embedded_text_needs_no_mirror_and_strays_are_deleted(tmp_path: Path) -> None:
    for file in files(CORPORA["demo"]):
        (tmp_path / "left by another attempt").write_text("x")
        facts = download.body(tmp_path, file)
        assert [path.name for path in tmp_path.iterdir()] == [file.name]
        assert facts["sha256"] == file.sha256
        assert (tmp_path / file.name).read_bytes() == corpus.content(file.path)
        (tmp_path / file.name).unlink()
