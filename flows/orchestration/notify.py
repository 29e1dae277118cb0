"""Prefect automations that post JSON to a webhook when a run ends and when an alias of a model moves.

The address is a secret, so an encrypted block of the server holds it. There is one block: a new address replaces the
old one. The JSON holds the flow run's message, its scores or its error, or the version with its new alias and why.
"""

import os
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from prefect.events import emit_event
from prefect.events.actions import CallWebhook
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.types import SecretDict
from pydantic import SecretStr

from flows.runner.interrupted import FLOWS
from infra.errors import BadConfiguration
from tasks.registration.aliases import WHY_CANDIDATE

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
ALIAS_NAME = "repro: tell of a moved alias"
ALIAS_MOVED = "repro.alias.moved"
MODELS = "repro.model."
ALIAS_PAYLOAD = """{
"specversion": "1.0", "id": "{{ event.id }}", "time": "{{ event.occurred }}", "type": "{{ event.event }}",
"source": {{ event.resource.id|tojson }}, "subject": {{ event.payload.version|tojson }},
"text": {{ (event.payload.alias ~ " is " ~ event.payload.version ~ ": " ~ event.payload.why)|tojson }},
"datacontenttype": "application/json", "data": {{ event.payload|tojson }}
}"""


def notify(address: str, say: Callable[[str], None]) -> None:
    """Post to ``address`` when a run ends or an alias moves; "none" stops it.

    Raises BadConfiguration for anything else but a URL.
    """
    with get_client(sync_client=True) as client:
        if address == "none":
            for existing in (each for name in (NAME, ALIAS_NAME) for each in client.read_automations_by_name(name)):
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
        run_ends = EventTrigger(
            match={"prefect.resource.id": "prefect.flow-run.*"},
            match_related={"prefect.resource.role": "flow", "prefect.resource.name": [*FLOWS]},
            for_each={"prefect.resource.id"},
            expect=ENDS,
            posture=Posture.Reactive,
            threshold=1,
        )
        alias_moves = EventTrigger(
            match={"prefect.resource.id": f"{MODELS}*"},
            for_each={"prefect.resource.id"},
            expect={ALIAS_MOVED},
            posture=Posture.Reactive,
            threshold=1,
        )
        for name, trigger, payload in ((NAME, run_ends, PAYLOAD), (ALIAS_NAME, alias_moves, ALIAS_PAYLOAD)):
            automation = AutomationCore(
                name=name,
                description="Made by `repro deploy --notify`.",
                enabled=True,
                trigger=trigger,
                actions=[CallWebhook(block_document_id=block, payload=payload)],
            )
            if known := client.read_automations_by_name(name):
                client.update_automation(known[0].id, automation)
            else:
                client.create_automation(automation)
        say("notifications are on: the webhook is called when a run ends or an alias moves")


def tell_of_alias(version: str, alias: str, why: str) -> None:
    """Tell the standing Prefect server, if there is one, that the alias moved to ``version`` (``demo/3``)."""
    if os.environ.get("PREFECT_API_URL"):
        resource = {"prefect.resource.id": f"{MODELS}{version}", "prefect.resource.name": version}
        emit_event(ALIAS_MOVED, resource, payload={"version": version, "alias": alias, "why": why})


def tell_of_registration(facts: dict[str, Any]) -> None:
    """The same for each alias that a registration moved, by the facts of the stage ``register``."""
    decision = f"{facts.get('decision', '')}"
    reasons = {"candidate": f"{WHY_CANDIDATE}; {decision}", "champion": decision.removeprefix("champion: ")}
    for alias in filter(None, f"{facts.get('aliases', '')}".split(", ")):
        tell_of_alias(f"{facts['name']}/{facts['version']}", alias, reasons[alias])
