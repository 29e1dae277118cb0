"""The files of a dataset that ``save_to_disk`` of Hugging Face's library datasets wrote; the library is not needed."""

import json
from pathlib import Path

from infra.errors import BadConfiguration, BadData
from infra.guards.path_names import path_below

STATE = "state.json"
SPLITS = "dataset_dict.json"
"""Files of a saved dataset, and of a folder with one for each split."""


def shards(folder: Path, option: str) -> tuple[Path, ...]:
    """The Arrow files of a saved dataset, in their order. Raises BadConfiguration naming the ``option``."""
    try:
        if (folder / SPLITS).is_file():
            names = ", ".join(f"{folder / split}" for split in json.loads((folder / SPLITS).read_text())["splits"])
            raise BadConfiguration(f"{option} is {f'{folder}'!r}, a dataset with splits; give one of them: {names}")
        state = json.loads((folder / STATE).read_text())
        found = tuple(path_below(folder, each["filename"]) for each in state["_data_files"])
        reordered = state.get("_indices_data_files")
    except FileNotFoundError:
        allowed = "a file, or a folder that save_to_disk of the library datasets wrote"
        raise BadConfiguration(f"{option} is the folder {f'{folder}'!r}, allowed is {allowed}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, BadData) as error:
        raise BadConfiguration(f"{option}: {folder / STATE} is no state of a saved dataset ({error})") from error
    if reordered:
        advice = "call flatten_indices() in the library datasets and save it again"
        raise BadConfiguration(f"{option}: {folder} has its rows in another order than its files; {advice}")
    for file in found:
        if not file.is_file():
            raise BadConfiguration(f"{option}: {folder} lacks {file.name}, which {STATE} names; save it again")
    if not found:
        raise BadConfiguration(f"{option}: {folder} has no rows")
    return found
