"""The Prefect server of a service removes flow runs that ended long ago, with their logs; by default it keeps them."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.service.programs import environment, environment_of, programs
from infra.service.settings import Service

SERVER = """
import asyncio, sys
from datetime import datetime
from prefect.server.database import provide_database_interface
from prefect.server.schemas.states import StateType
from prefect.server.services import db_vacuum
from prefect.settings import get_current_settings

async def main():
    if "flow_runs" not in get_current_settings().server.services.db_vacuum.enabled_vacuum_types:
        return
    db = provide_database_interface()
    await db.create_db()
    async with db.session_context(begin_transaction=True) as session:
        flow = db.Flow(name="flow")
        session.add(flow)
        await session.flush()
        for name, ended in zip(("old", "new"), map(datetime.fromisoformat, sys.argv[1:])):
            run = db.FlowRun(flow_id=flow.id, name=name, state_type=StateType.COMPLETED, end_time=ended)
            session.add(run)
            await session.flush()
            session.add(db.Log(name="log", level=20, message=name, timestamp=ended, flow_run_id=run.id))
        session.add(db.FlowRun(flow_id=flow.id, name="still running", state_type=StateType.RUNNING))
    await db_vacuum.vacuum_old_flow_runs(db=db)
    async with db.session_context() as session:
        for table, field in ((db.FlowRun, db.FlowRun.name), (db.Log, db.Log.message)):
            print(*sorted((await session.execute(db_vacuum.sa.select(field))).scalars()), sep=", ")

asyncio.run(main())
"""


@pytest.mark.slow
def test_old_flow_runs_are_removed_with_their_logs(tmp_path: Path) -> None:
    service = Service(tmp_path, cpu_workers=0)
    service.folder.mkdir()
    service.write()
    prefect = programs(service)[0]
    ends = [(datetime.now(UTC) - timedelta(days=days)).isoformat() for days in (91, 89)]
    done = subprocess.run(
        [sys.executable, "-c", SERVER, *ends],
        env=environment_of(service, prefect, environment(service, os.environ)),
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["new, still running", "new"], done.stderr


def test_the_operator_decides_what_is_removed(tmp_path: Path) -> None:
    service, name = Service(tmp_path, cpu_workers=0), "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"
    found = environment_of(service, programs(service)[0], {name: "events"})
    assert found[name] == "events"
