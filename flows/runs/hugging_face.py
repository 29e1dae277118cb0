"""Downloads files of a dataset on the Hugging Face Hub at one revision.

``hf://datasets/OWNER/NAME@REVISION/PATH``: the default is the newest revision; PATH may contain ``*``.
"""

import fnmatch
import re
from pathlib import Path
from urllib.parse import unquote

from infra.errors import BadConfiguration, Fault, NetworkFault

SCHEME = "hf://"
ADDRESS = re.compile(r"hf://datasets/(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/(?P<path>.+)")
JSON = (".json", ".jsonl")
PARQUET = "hf://datasets/{}@refs%2Fconvert%2Fparquet/default/train/*.parquet"
"""Address of the Parquet copy that the Hub makes of datasets in other formats."""


def hub_files(address: str, option: str) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Download the files that match ``address``; return their paths in the Hub's cache and their pinned addresses.

    Raises BadConfiguration that names the ``option`` if no file matches, NetworkFault if the Hub does not answer.
    """
    match = ADDRESS.fullmatch(address)
    if not match:
        raise BadConfiguration(f"{option} is {address!r}, allowed is hf://datasets/OWNER/NAME/FILE:COLUMN")
    name, quoted, path = match.groups()
    if path.removesuffix(".gz").endswith(JSON):
        raise BadConfiguration(f"{option} is {address!r}, which is JSON; the Hub has it as {PARQUET.format(name)} too")
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    revision = unquote(quoted) if quoted else None
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
        advice = "try again, or give files of this machine"
        raise NetworkFault(f"{option}: the Hugging Face Hub gave no {address} ({reason}); {advice}") from error
    pinned = tuple(f"{SCHEME}datasets/{name}@{found.sha}/{each}" for each in chosen)
    return tuple(Path(place) for place in places), pinned
