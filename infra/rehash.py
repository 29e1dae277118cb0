"""Every byte of an artifact read anew, in a folder or in a bucket; and what is found wrong is believed from then on."""

from infra.mirrored import Mirrored
from infra.store import Manifest, Store, sha256_of


def rehash(store: Store, manifest: Manifest) -> list[str]:
    """Each damaged or missing file in a few words, none where all is right.

    What is damaged is not trusted by its looks any more: the next run that needs it makes it again.
    """
    if isinstance(store, Mirrored):
        wrong = list(store.rehash(manifest))
        if wrong:
            store.set_aside(manifest.stage, manifest.key)
        return wrong
    wrong = [found for name in manifest.files if (found := _damage(store, manifest, name))]
    if wrong:
        store.forget(manifest.stage, manifest.key)
    return wrong


def _damage(store: Store, manifest: Manifest, name: str) -> str:
    path, expected = store.folder(manifest.stage, manifest.key) / name, manifest.files[name]
    try:
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, not {expected['bytes']}"
        return "" if sha256_of(path) == expected["sha256"] else f"{name} was altered"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"
