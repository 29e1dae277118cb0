"""Seal existing work, such as a tokenizer or weights of before, as the artifact that a run would make.

The manifest says from where, by whom and when; it names no inputs, commit or libraries, as the work was not made from
them. The record of the adoption keeps the artifact from garbage collection and gives it a name.
"""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from flows import reproduce
from flows.runner import records
from flows.runner.adopted_files import AdoptableForm, adoptable_form
from flows.runner.outcome import Outcome
from flows.runner.request import ResolvedRun, RunPlan
from infra.errors import BadConfiguration, BadData
from infra.processes.locks import file_lock
from infra.store.local import Store
from infra.tracking.provenance import user
from tasks.engine.planner import StageResult

ADOPTED = "ADOPTED"
"""The outcome in the record of an adoption."""


def adopt(
    resolved: ResolvedRun, stage: str, path: Path, item: str, *, replace: bool, say: Callable[[str], None]
) -> Outcome:
    """Seal the files at ``path`` as the artifact of ``stage`` that the run needs; returns the new plan of the run.

    ``path`` is a folder, or the file itself where the artifact has only one. Raises BadConfiguration for a stage that
    cannot be adopted, for a missing path, and for an artifact that exists unless ``replace``; BadData for files of
    another form.
    """
    planned, started = resolved.plan, datetime.now(UTC)
    form = adoptable_form(resolved.run, stage, item, _vocabulary(planned))
    row = next((row for row in planned.outcome.rows if (row.stage, row.item) == (stage, item)), None)
    if row is None:
        raise BadConfiguration(f"{resolved.run.name} runs no stage {stage}: it uses the vocabulary of training.start")
    sources = _sources(form, path)
    store = planned.store
    with file_lock(store.lock_file(stage, row.key), lambda holder: say(f"waiting for {holder}")):
        if store.has_folder(stage, row.key) and not replace:
            exists = f"{store.address(stage, row.key)} exists"
            raise BadConfiguration(f"{exists}: {resolved.run.name} has its {row.stage} already; --force replaces it")
        _seal(store, row, form, sources, path)
    store.release()
    outcome = resolved.request.resolve().plan.outcome
    # With another ``until``, so that the record hides no interrupted run of the same request.
    request = {**vars(resolved.request), "until": stage}
    store.send(records.write(store.root, resolved.run.name, request, outcome.rows, ADOPTED, started))
    return outcome


def _seal(store: Store, row: StageResult, form: AdoptableForm, sources: dict[str, Path], path: Path) -> None:
    out = store.partial(row.stage, row.key, {})
    try:
        for name, source in sources.items():
            shutil.copyfile(source, out / name)
        try:
            facts = form.check(out)
        except BadData as wrong:
            raise BadData(f"{path} cannot be adopted as {row.stage}: {f'{wrong}'.replace(f'{out}/', '')}") from wrong
        now = datetime.now(UTC)
        origin = {"from": f"{path.absolute()}", "by": user(), "on": f"{now:%Y-%m-%d}"}
        store.seal(
            out,
            {
                "stage": row.stage,
                "key": row.key,
                "version": getattr(reproduce, row.stage).version,
                "item": row.item,
                "arguments": row.form,
                "inputs": {},
                "facts": facts,
                "seconds": 0.0,
                "made": {"at": now.isoformat(timespec="seconds"), "adopted": origin},
            },
        )
    except BaseException:
        store.discard(out)
        raise


def _sources(form: AdoptableForm, path: Path) -> dict[str, Path]:
    """The file to copy for each name of the artifact. Raises BadConfiguration for a path that is not there."""
    if not path.exists():
        raise BadConfiguration(f"PATH is {path}, which does not exist: name a folder with {', '.join(form.files)}")
    if path.is_file() and len(form.files) == 1:
        return {form.files[0]: path}
    if missing := [name for name in form.files if not (path / name).is_file()]:
        raise BadConfiguration(f"{path} has no {missing[0]}, allowed is a folder with {' and '.join(form.files)}")
    return {name: path / name for name in form.files}


def _vocabulary(planned: RunPlan) -> Path | None:
    """The folder of the run's vocabulary, None where it does not exist yet."""
    if planned.initial:
        return planned.initial.vocabulary.path()
    found = (planned.lookups[row.key].artifact for row in planned.outcome.rows if row.stage == "learn_bpe")
    artifact = next(filter(None, found), None)
    return artifact.path() if artifact else None
