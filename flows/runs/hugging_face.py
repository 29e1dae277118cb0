"""The files of a Hugging Face dataset: on the Hub at one revision, or as ``save_to_disk`` wrote them.

``hf://datasets/OWNER/NAME@REVISION/PATH``: without a revision it is the newest; PATH may have ``*``.
"""

import fnmatch
import json
import re
from pathlib import Path
from urllib.parse import unquote

from infra.errors import BadConfiguration, BadData, Fault, NetworkFault
from infra.guards.path_names import path_below

SCHEME = "hf://"
ADDRESS = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/(?P<path>.+)")
JSON = (".json", ".jsonl")
PARQUET = "hf://datasets/{}@refs%2Fconvert%2Fparquet/default/train/*.parquet"
"""Where the Hub has a dataset of another format as Parquet."""
STATE = "state.json"
SPLITS = "dataset_dict.json"
"""Files of a saved dataset, and of a folder with one for each split."""


def hub_files(address: str, option: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Download the files that ``address`` means; give their places in the Hub's cache and the addresses that pin them.

    Raises BadConfiguration naming the ``option`` where there are none, NetworkFault where the Hub does not answer.
    """
    match = ADDRESS.fullmatch(address)
    if not match:
        raise BadConfiguration(f"{option} is {address!r}, allowed is hf://datasets/OWNER/NAME/FILE:COLUMN")
    name = match["name"]
    path = match["path"]
    if path.removesuffix(".gz").endswith(JSON):
        raise BadConfiguration(f"{option} is {address!r}, which is JSON; the Hub has it as {PARQUET.format(name)} too")
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    revision = unquote(match["revision"]) if match["revision"] else None
    try:
        found = HfApi().dataset_info(name, revision=revision)
        listed = sorted(each.rfilename for each in found.siblings or ())
        chosen = [each for each in listed if fnmatch.fnmatchcase(each, path)]
        if not chosen:
            others = ", ".join(listed[:20])
            raise BadConfiguration(f"{option} is {address!r}, but the dataset has no file {path!r}; it has {others}")
        places = [hf_hub_download(name, each, repo_type="dataset", revision=found.sha) for each in chosen]
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        at = f" at revision {revision}" if revision else ""
        advice = "correct the name, or set HF_TOKEN if it is not public"
        raise BadConfiguration(f"{option}: the Hugging Face Hub has no dataset {name}{at}; {advice}") from error
    except Fault:
        raise
    except Exception as error:
        reason = f"{error}".partition("\n")[0] or type(error).__name__
        advice = "try again, or give files or a folder of this machine"
        raise NetworkFault(f"{option}: the Hugging Face Hub does not give {address} ({reason}); {advice}") from error
    pinned = tuple(f"{SCHEME}datasets/{name}@{found.sha}/{each}" for each in chosen)
    return tuple(Path(place) for place in places), pinned


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
