"""Stops a running run: in a process of this machine, on a worker of the service, or as a job in a batch queue.

A process gets SIGTERM: it saves a last checkpoint and ends its jobs, also those in a queue. A process that is already
ending continues to do so, while a second Ctrl-C would abort it. For a deployment, Prefect's server cancels the flow
run, and its worker ends the process on any machine. After a killed process, a job may remain in a queue; it is
cancelled by its name.
"""

import os
import signal
from collections.abc import Callable, Sequence

from flows.runner.interrupted import FLOWS
from flows.runner.recorded_runs import RecordedRun, read_headers, run_names, with_overrides, with_stages
from flows.runner.records import RUNNING, receive_records
from infra.errors import BadConfiguration, Fault
from infra.launch.batch_queue import QueueLauncher
from infra.launch.job import JobSpec
from infra.processes import signals
from infra.processes.identity import process_state
from infra.servers.environment import server_configured
from infra.servers.prefect_states import cancel_flow_runs
from infra.site import Site, open_store
from tasks.engine.jobs import LAUNCHERS

END_SECONDS = signals.PATIENCE_SECONDS + 30.0
"""How long a run may take to end: last checkpoint, record, and a worker that polls every few seconds."""
POLL_SECONDS = 0.5


def starts_at_work(site: Site, run: str) -> list[RecordedRun]:
    """List the running starts of a run, the newest first. Raises BadConfiguration for a run without a record."""
    store = open_store(site)
    receive_records(store, run)
    known = [*read_headers(store.root, run)]
    if not known:
        names = ", ".join(run_names(store.root)) or "none"
        raise BadConfiguration(f"no run {run!r} is on record in {store.root}, there is: {names}")
    return [each for each in known if each.outcome == RUNNING]


def stop_start(site: Site, start: RecordedRun, say: Callable[[str], None]) -> RecordedRun:
    """Stop a running start, wait for its end, and return its record.

    Raises Fault if it cannot be stopped from here, or has not ended after END_SECONDS.
    """
    if start.group:
        say(f"{start.run} is {start.part}: the command that started it stops too")
    names = cancel_flow_runs(FLOWS, start.process) if server_configured() else []
    if names:
        say(f"{start.run}: Prefect cancels the flow run {', '.join(names)}")
    elif (state := process_state(start.process)) == "alive":
        pid = int(start.pid)
        say(f"{start.run}: process {pid} of this machine is interrupted; it writes a last checkpoint first")
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:  # it has just ended
            pass
        except PermissionError:
            raise Fault(f"{start.run} runs in process {pid} of {start.who}: only that user can stop it") from None
    elif state == "elsewhere":
        where = f"on another machine ({start.who}), and no Prefect server here has it"
        raise Fault(f"{start.run} runs {where}: stop it there")
    for _ in range(int(END_SECONDS / POLL_SECONDS)):
        signals.wait(POLL_SECONDS)
        receive_records(open_store(site), start.run)
        if (now := with_stages(start)) and now.outcome != RUNNING:
            return now
    raise Fault(f"{start.run} has not ended after {END_SECONDS:.0f} s: `repro logs {start.run}` shows what it does")


def stop_left_jobs(site: Site, run: str, overrides: Sequence[str], say: Callable[[str], None]) -> RecordedRun | None:
    """End the jobs that a killed launcher left in a batch queue, for any start with these overrides.

    Returns the newest such start; None if there is no such job. Raises Fault for a job that does not end.
    """
    launcher = LAUNCHERS[site.launcher]()
    if not isinstance(launcher, QueueLauncher):
        return None
    launcher.say = say
    store = open_store(site)
    found = None
    starts = [*filter(None, map(with_stages, with_overrides(read_headers(site.root, run), overrides)))]
    rows = [(start, row) for start in starts for row in start.stages]
    at_work = {row.key for start, row in rows if start.outcome == RUNNING}
    for start, row in rows:
        if row.key in at_work:
            continue
        for out in store.unfinished_folders(row.stage, row.key):
            job = JobSpec(f"model.{row.stage}", {}, {}, out, {})
            is_left = (out / launcher.queue.file).exists() and not store.is_locked(row.stage, row.key)
            if is_left and (name := launcher.queue.find(job)):
                say(f"{run}: the launcher of {name} is gone; {row.stage} writes a last checkpoint")
                if not launcher.end(name, job):
                    raise Fault(f"{name} of {row.stage} has not ended")
                found = found or start
    return found
