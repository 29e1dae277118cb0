"""Makes stages for commands outside a run, such as ``repro gap``, and logs them to an MLflow run."""

from collections.abc import Callable, Mapping
from contextlib import closing

from infra.servers.mlflow_sqlite import check_database
from infra.site import Site, open_store
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker, ending
from tasks.engine.planner import Planner, Scope
from tasks.engine.progress import Display
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine
from tasks.reporting.stage_files import stage_files


def make(
    site: Site, display: Display, experiment: str, title: str, tags: Mapping[str, str], stages: Callable[[], Artifact]
) -> Artifact:
    """Make the missing stages and return the result of ``stages``. Raises the Fault of a stage that fails."""
    store = open_store(site)
    scope = Scope(())  # without a last stage, so without an order
    planner = Planner(store, site, scope)
    with engine(planner):
        stages()
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    runner = Runner(RunSettings(store, site, scope, display, tracker, plan=planner.lookups, files=stage_files))
    with closing(runner), ending(tracker), engine(runner):
        if any(row.state != "cached" for row in planner.rows):
            check_database(site.tracking)
            tracker.start(experiment, title, tags, {})
        return stages()
