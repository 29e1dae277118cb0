"""A version is decoded with the settings of its tags."""

from datetime import UTC, datetime

from flows.inference.load_version import decoding_config
from infra.tracking.model_version import Version
from model.config import Decoding


def test_a_setting_of_an_earlier_release_is_left_out() -> None:
    tags = {"decoding.beam": "2", "decoding.numerics": "fast", "decoding.beta": "0.0"}
    assert decoding_config(Version("one", 1, datetime.now(UTC), (), tags, "", "")) == Decoding(beam=2)
