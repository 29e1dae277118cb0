"""Licence and intended use of the known texts, by the name of the part of a corpus; ``docs/data.md`` says the same.

A mirror may have further terms. What is not listed is the user's own text.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Terms:
    """What the publisher states, as far as it was found; no legal advice."""

    licence: str
    use: str


_SHARED_TASKS = "no licence file; released for the shared tasks of WMT"
TERMS = {
    "demo": Terms(
        "part of this project, which has no licence yet",
        "trying the pipeline; a score on it says that the pipeline works",
    ),
    "multi30k": Terms(
        "no licence file; its README provides the data for non-commercial research and/or educational purposes",
        "research and education without commerce: captions of photographs",
    ),
    "europarl": Terms(
        "not stated in the copies; its site says its authors know of no copyright restrictions",
        "research; proceedings of parliament",
    ),
    "commoncrawl": Terms(_SHARED_TASKS, "research; noisy, partly misaligned"),
    "news-commentary": Terms(_SHARED_TASKS, "research"),
    "un": Terms("unknown", "research"),
    "giga": Terms("unknown", "research"),
    "wmt14_sample": Terms(
        "that of its sources: Europarl v7, news sets of WMT, Common Crawl", "small machines; research"
    ),
}
OWN = Terms("not stated", "not stated: text of whoever made the run")
"""Terms of a part that this project does not know."""
