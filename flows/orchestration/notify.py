"""Where Prefect tells of the end of a run: an automation that posts JSON to an address, which is a secret.

The address lies in a block of the server's, which keeps it encrypted and shows it to nobody; there is one, so setting
another replaces it. What is posted holds the flow run's message: its scores, or the sentence of its fault.
"""

from collections.abc import Callable
from typing import cast
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.types import SecretDict
from pydantic import SecretStr

from infra.errors import BadConfiguration

NAME = "repro: tell of the end of a run"
BLOCK = "repro-notify"
FLOWS = ["reproduce", "paper"]
ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Crashed", "TimedOut")}
PAYLOAD = """{
"specversion": "1.0", "id": "{{ event.id }}", "time": "{{ event.occurred }}", "type": "{{ event.event }}",
"source": {{ (flow_run|ui_url)|string|tojson }}, "subject": {{ flow_run.name|tojson }},
"text": {{ (flow_run.name ~ " " ~ flow_run.state.name ~ ": " ~ flow_run.state.message)|tojson }},
"datacontenttype": "application/json",
"data": {"flow": {{ flow.name|tojson }}, "state": {{ flow_run.state.name|tojson }},
"message": {{ flow_run.state.message|tojson }}, "parameters": {{ flow_run.parameters|tojson }}}
}"""
"""CloudEvents' form; ``text`` is what chat rooms show."""


def notify(address: str, say: Callable[[str], None]) -> None:
    """Post the ends of runs to ``address`` from now on; "none" ends it. Raises BadConfiguration."""
    with get_client(sync_client=True) as client:
        there = client.read_automations_by_name(NAME)
        if address == "none":
            for each in there:
                client.delete_automation(each.id)
            say("the ends of runs are told to nobody")
            return
        if not address.startswith(("http://", "https://")):
            raise BadConfiguration(
                "--notify is no address: allowed is one that begins with https:// or http://, or none"
            )
        headers = SecretDict({"Content-Type": "application/json"})
        hook = Webhook(method="POST", url=SecretStr(address), headers=headers)
        block = cast(UUID, hook.save(BLOCK, overwrite=True))
        wanted = AutomationCore(
            name=NAME,
            description="Made by `repro deploy --notify`.",
            enabled=True,
            trigger=EventTrigger(
                match={"prefect.resource.id": "prefect.flow-run.*"},
                match_related={"prefect.resource.role": "flow", "prefect.resource.name": FLOWS},
                for_each={"prefect.resource.id"},
                expect=ENDS,
                posture=Posture.Reactive,
                threshold=1,
            ),
            actions=[CallWebhook(block_document_id=block, payload=PAYLOAD)],
        )
        if there:
            client.update_automation(there[0].id, wanted)
        else:
            client.create_automation(wanted)
        say("the ends of runs are posted to the address given")
