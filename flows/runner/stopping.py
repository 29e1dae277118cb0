"""Stops a run at work: in a process of this machine, on a worker of the service, or left behind in a batch queue.

A process gets SIGTERM: it ends its jobs, those in a queue too, after a last checkpoint. One that is ending already goes
on with that, where a second Ctrl-C would cut it short. The flow run of a
deployment is cancelled at Prefect's server, whose worker then ends the process, on whichever machine that is. Where the
process was killed, a job in a queue may have survived it; that one is cancelled by its name.
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
"""How long a run may take to end: its last checkpoint, its record, and a worker that looks every few seconds."""
POLL_SECONDS = 0.5


def starts_at_work(site: Site, run: str) -> list[RecordedRun]:
    """The starts of a run that are at work, the newest first. Raises BadConfiguration for a run without a record."""
    store = open_store(site)
    receive_records(store, run)
    known = [*read_headers(store.root, run)]
    if not known:
        names = ", ".join(run_names(store.root)) or "none"
        raise BadConfiguration(f"no run {run!r} is on record in {store.root}, there is: {names}")
    return [each for each in known if each.outcome == RUNNING]


def stop_start(site: Site, start: RecordedRun, say: Callable[[str], None]) -> RecordedRun:
    """Stop a start that is at work, and wait for its end; gives its record then.

    Raises Fault where it cannot be reached from here, or has not ended after END_SECONDS.
    """
    if start.group:
        say(f"{start.run} is {start.part}: what started it goes with it")
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
    """End the jobs that a batch queue still has of a killed launcher: of the newest start with these overrides.

    Gives that start; None if there is no such job. Raises Fault for one that does not end.
    """
    launcher = LAUNCHERS[site.launcher]()
    starts = with_overrides(read_headers(site.root, run), overrides)
    start = with_stages(starts[0]) if starts else None
    if not isinstance(launcher, QueueLauncher) or start is None or start.outcome == RUNNING:
        return None
    launcher.say = say
    store = open_store(site)
    found = None
    for row in start.stages:
        for out in store.unfinished_folders(row.stage, row.key):
            job = JobSpec(f"model.{row.stage}", {}, {}, out, {})
            is_left = (out / launcher.queue.file).exists() and not store.is_locked(row.stage, row.key)
            if is_left and (name := launcher.queue.find(job)):
                say(f"{run}: the launcher of {name} is gone; {row.stage} writes a last checkpoint")
                if not launcher.end(name, job):
                    raise Fault(f"{name} of {row.stage} has not ended")
                found = start
    return found
