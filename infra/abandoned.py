"""Runs in MLflow whose process is gone: ended, since nobody else will.

Comes in: MLflow's address. Goes out: how many were ended. The process of a run stands in its tag ``process``.
"""

from infra.holders import life
from infra.mlflow_store import client

HOLDER = "process"
FAILURE = "its process is gone"


def end_abandoned(uri: str) -> int:
    """End as KILLED each RUNNING run whose process on this machine is gone; raises what MLflow raises."""
    store = client(uri)
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    page, running = "", "attributes.status = 'RUNNING' and tags.process != ''"
    gone: list[str] = []
    while experiments:
        found = store.search_runs(experiments, running, page_token=page or None)
        gone += [run.info.run_id for run in found if life(run.data.tags.get(HOLDER, "")) == "gone"]
        if not (page := found.token or ""):
            break
    for run_id in gone:
        store.set_tag(run_id, "failure", FAILURE)
        store.set_terminated(run_id, "KILLED")
    return len(gone)
