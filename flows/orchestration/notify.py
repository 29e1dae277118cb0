"""A Prefect automation that posts JSON to a webhook when a run ends.

The address is a secret, so an encrypted block of the server holds it. There is one block: a new address replaces the
old one. The JSON holds the flow run's message, its scores or its error.
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

from flows.runner.interrupted import FLOWS
from infra.errors import BadConfiguration

NAME = "repro: tell of the end of a run"
BLOCK = "repro-notify"
ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Crashed", "TimedOut")}
PAYLOAD = """{
"specversion": "1.0", "id": "{{ event.id }}", "time": "{{ event.occurred }}", "type": "{{ event.event }}",
"source": {{ (flow_run|ui_url)|string|tojson }}, "subject": {{ flow_run.name|tojson }},
"text": {{ (flow_run.name ~ " " ~ flow_run.state.name ~ ": " ~ flow_run.state.message)|tojson }},
"datacontenttype": "application/json",
"data": {"flow": {{ flow.name|tojson }}, "state": {{ flow_run.state.name|tojson }},
"message": {{ flow_run.state.message|tojson }}, "parameters": {{ flow_run.parameters|tojson }}}
}"""
"""A CloudEvent. Chat programs show ``text``."""


def notify(address: str, say: Callable[[str], None]) -> None:
    """Post to ``address`` when a run ends; "none" stops it.

    Raises BadConfiguration for anything else but a URL.
    """
    with get_client(sync_client=True) as client:
        if address == "none":
            for existing in client.read_automations_by_name(NAME):
                client.delete_automation(existing.id)
            say("notifications are off: no webhook is called when a run ends")
            return
        if not address.startswith(("http://", "https://")):
            raise BadConfiguration(
                "--notify is not a URL; allowed is an address that begins with https:// or http://, or none"
            )
        headers = SecretDict({"Content-Type": "application/json"})
        hook = Webhook(method="POST", url=SecretStr(address), headers=headers)
        block = cast(UUID, hook.save(BLOCK, overwrite=True))
        trigger = EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": [*FLOWS]},
            for_each={"prefect.resource.id"},
            expect=ENDS,
            posture=Posture.Reactive,
            threshold=1,
        )
        automation = AutomationCore(
            name=NAME,
            description="Made by `repro deploy --notify`.",
            enabled=True,
            trigger=trigger,
            actions=[CallWebhook(block_document_id=block, payload=PAYLOAD)],
        )
        if known := client.read_automations_by_name(NAME):
            client.update_automation(known[0].id, automation)
        else:
            client.create_automation(automation)
        say("notifications are on: the webhook is called when a run ends")
