"""``repro models`` and ``repro promote``."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.runner.artifact_names import is_version
from flows.runner.find_run import find_version, recorded_name
from flows.runs import RUNS
from flows.runs.unknown_names import did_you_mean, unknown_name
from flows.views.terminal import print_json, print_text, say
from infra.errors import BadConfiguration
from infra.site import configured_site, open_store
from tasks.registration.aliases import alias_lock


def models(
    name: Annotated[
        str, Parameter(help="one model, for example demo; `repro show demo@champion` shows one version in full")
    ] = "",
    *,
    sort: Annotated[
        Literal["name", "newest", "dev", "test"],
        Parameter(help="order by name, by date, or by BLEU on the dev set or the first test set"),
    ] = "name",
    systems: Annotated[bool, Parameter(help="list other systems too, as `repro score` stored them")] = False,
    as_json: JsonOption = False,
) -> None:
    """List registered model versions with their scores, protocol, digests and aliases.

    Example: repro models demo --sort test
    """
    from flows.runner.systems import foreign_scores
    from infra.tracking.model_version import ordered
    from infra.tracking.registry import versions

    site = configured_site()
    name = recorded_name(name)
    if "@" in name or "/" in name:
        raise BadConfiguration(f"name is {name!r}, allowed is a model; `repro show {name}` shows one version")
    found = versions(site.registry, name)
    known = foreign_scores(open_store(site)) if systems else []
    others = [each for each in known if name in ("", each.on.rpartition("/")[0])]
    if name and not found and not others:
        if models_here := sorted({version.name for version in versions(site.registry)}):
            raise BadConfiguration(unknown_name(name, models_here, f"{site.root}", "model"))
        hint = f"; `repro run {name}` registers one" if name in RUNS else did_you_mean(name, RUNS)
        raise BadConfiguration(f"no model {name!r} is registered in {site.root}, which has none yet{hint}")
    if not found and not others:
        say(f"no model is registered in {site.root.absolute()}; `repro run demo` registers one; or set REPRO_ROOT")
    found = found if sort == "name" else ordered(found, sort)
    if as_json:
        print_json([*map(version_json, found), *(each.as_json() for each in others)])
        return
    for newest in {each.name: each for each in sorted(found, key=lambda each: each.version)}.values():
        if "champion" not in newest.aliases and newest.tags.get("decision", "").startswith("not champion"):
            say(f"{newest.label} is {newest.tags['decision']}")
    for line in (*(version.line() for version in found), *(each.line() for each in others)):
        print_text(line)


def promote(
    version: Annotated[str, Parameter(help="the version, for example demo/3 or demo@candidate")],
    *,
    why: Annotated[str, Parameter(help="reason, recorded with the version")],
    alias: Annotated[str, Parameter(help="alias to move")] = "champion",
) -> None:
    """Move an alias to a model version, and record who moved it, when and why.

    Example: repro promote demo/3 --why "read by two translators"
    """
    from infra.tracking.registry import set_alias

    if not is_version(version):
        raise BadConfiguration(
            f"version is {version!r}, allowed is one version, as in {version}/3 or {version}@candidate"
        )
    if not why.strip():
        raise BadConfiguration("--why is empty, allowed is a reason in words")
    site = configured_site()
    with alias_lock(site.root):
        chosen = find_version(version, site)
        if alias in chosen.aliases:
            say(f"{chosen.label} is {alias} already; nothing changed")
            return
        reason = set_alias(site.tracking, chosen, alias, why)
    print_text(f"{chosen.name}@{alias} is {chosen.label}  {reason}")


def version_json(version: Any) -> dict[str, Any]:
    names = ("name", "version", "dev", "test", "protocol", "run_id")
    return {name: getattr(version, name) for name in names} | {
        "created": version.created.isoformat(),
        "aliases": list(version.aliases),
        "bleu": dict(version.bleu),
        "digests": dict(version.digests),
        "modified": version.tags.get("modified") == "true",
        "tags": dict(version.tags),
    }
