"""MLflow's server in memory, below our client code: logged models, versions and aliases. Each request is one step."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from infra.tracking.model_version import Version, make_version
from simulated.machine import Machine

URI = "http://mlflow.simulated:5000"


@dataclass
class Registry:
    """What the server knows, and its client."""

    machine: Machine
    root: Path
    models: dict[str, SimpleNamespace] = field(default_factory=dict)
    found: list[SimpleNamespace] = field(default_factory=list)
    """The versions, the oldest first."""
    aliases: dict[str, str] = field(default_factory=dict)

    def _request(self, name: str, act: Callable[[], Any]) -> Any:
        self.machine.step(name)
        return act()

    def versions(self) -> list[Version]:
        """All versions, the oldest first."""
        aliases = {
            number: [name for name, to in self.aliases.items() if to == number] for number in self.aliases.values()
        }
        return [
            make_version(v.name, v.version, 0, v.run_id, v.source, v.tags, aliases.get(v.version, ()))
            for v in self.found
        ]

    # What infra.tracking asks MLflow's client for

    def search_registered_models(self, **which: Any) -> list[Any]:
        models = [SimpleNamespace(name=each, aliases=dict(self.aliases)) for each in {v.name for v in self.found}]
        return self._request("search_registered_models", lambda: models)

    def search_model_versions(self, **which: Any) -> list[Any]:
        copies = [SimpleNamespace(**{**vars(v), "tags": dict(v.tags)}) for v in self.found]
        return self._request("search_model_versions", lambda: copies)

    def search_logged_models(self, experiments: list[str], which: str) -> list[Any]:
        mine = [model for model in self.models.values() if f"'{model.source_run_id}'" in which]
        return self._request("search_logged_models", lambda: mine)

    def create_registered_model(self, name: str, **about: object) -> None:
        self._request("create_registered_model", lambda: None)

    def get_logged_model(self, model_id: str) -> Any:
        return self._request("get_logged_model", lambda: self.models[model_id])

    def get_run(self, run_id: str) -> Any:
        return self._request("get_run", lambda: SimpleNamespace(info=SimpleNamespace(experiment_id="1")))

    def create_logged_model(self, experiment: str, name: str, source_run_id: str) -> Any:
        def create() -> Any:
            model_id = f"m-{len(self.models):032x}"
            address = f"file://{self.root}/mlflow-artifacts/{model_id}"
            self.models[model_id] = SimpleNamespace(
                model_id=model_id, status="PENDING", source_run_id=source_run_id, artifact_location=address
            )
            return self.models[model_id]

        return self._request("create_logged_model", create)

    def log_model_artifacts(self, model_id: str, folder: str) -> None:
        self._request("log_model_artifacts", lambda: None)

    def finalize_logged_model(self, model_id: str, status: str) -> None:
        self._request("finalize_logged_model", lambda: setattr(self.models[model_id], "status", status))

    def create_model_version(self, name: str, source: str, run_id: str, tags: Mapping[str, str], model_id: str) -> Any:
        def create() -> Any:
            number = f"{len(self.found) + 1}"
            self.found.append(
                SimpleNamespace(
                    name=name, version=number, run_id=run_id, source=source, tags=dict(tags), creation_timestamp=0
                )
            )
            return self.found[-1]

        return self._request("create_model_version", create)

    def set_logged_model_tags(self, model_id: str, tags: Mapping[str, str]) -> None:
        self._request("set_logged_model_tags", lambda: None)

    def get_model_version(self, name: str, number: str) -> Any:
        return self._request("get_model_version", lambda: self.found[int(number) - 1])

    def set_model_version_tag(self, name: str, number: str, tag: str, value: str) -> None:
        self._request("set_model_version_tag", lambda: self.found[int(number) - 1].tags.update({tag: value}))

    def update_model_version(self, name: str, number: str, description: str) -> None:
        self._request("update_model_version", lambda: None)

    def set_registered_model_alias(self, name: str, alias: str, number: str) -> None:
        self._request("set_registered_model_alias", lambda: self.aliases.update({alias: number}))


@contextmanager
def simulated_registry(registry: Registry) -> Iterator[None]:
    """Lead our client code to the registry for the block."""

    def pages(search: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
        return list(search(*arguments, **named))

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            registry.machine.disk.now_ns += 10**6  # a promotion tells milliseconds
            return cls.fromtimestamp(registry.machine.time(), tz)

    with (
        patch("infra.tracking.registry.datetime", Clock),
        patch("infra.tracking.registry.mlflow_client", lambda uri: registry),
        patch("infra.tracking.model_logging.mlflow_client", lambda uri: registry),
        patch("infra.tracking.model_files.mlflow_client", lambda uri: registry),
        patch("infra.tracking.registry.all_pages", pages),
        patch("infra.tracking.client.all_pages", pages),
        patch("infra.tracking.model_logging._save", lambda *arguments: None),
        patch("infra.tracking.model_logging._attach", lambda *arguments: None),
        patch("infra.tracking.registry.user", lambda: "somebody"),
        patch("tasks.registration.aliases.user", lambda: "somebody"),
        patch("tasks.registration.version_tags.commit", lambda: "c0ffee"),
    ):
        yield
