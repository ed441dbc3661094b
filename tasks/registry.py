"""The recommended engine as a model version: `challenger` when it is proposed, `champion` when a person approved it.

An alias is a copy of the record's status, never the approval itself.
"""

from typing import TYPE_CHECKING

from tasks.facts import Evidence
from tasks.runs import Copy

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

ALIASES = {"proposed": "challenger", "approved": "champion"}  # by the record's status; any other status has none


def register(copy: Copy, children: dict[str, str]) -> None:
    """Make the record's model version if it recommends one, and let the aliases follow the record's status."""
    if (version := _version(copy, children)) is None:
        return
    name, client, wanted = copy.record.model.id, copy.client, ALIASES.get(copy.record.status)
    client.set_model_version_tag(name, version.version, "crossgrade.status", copy.record.status)
    for alias in ALIASES.values():
        holder = _holder(copy, alias)
        mine = holder is not None and holder.version == version.version
        if alias == wanted and not mine and not _newer(holder, copy):
            client.set_registered_model_alias(name, alias, version.version)
        elif alias != wanted and mine:
            client.delete_registered_model_alias(name, alias)


def _version(copy: Copy, children: dict[str, str]) -> "ModelVersion | None":
    """The version that holds this record's engine: found by its run, or made; None where nothing is recommended."""
    digest = copy.record.decision.recommended_digest
    outcome = copy.record.outcome(digest) if digest in children and digest else None
    if not isinstance(outcome, Evidence) or not digest:
        return None
    client, name, run_id = copy.client, copy.record.model.id, children[digest]
    _ensure_model(copy)
    if found := client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'"):
        return found[0]
    if not copy.store.has(outcome.engine.sha256):
        return None
    file = copy.scratch / f"engine.{outcome.engine.format}"
    file.symlink_to(copy.store.path(outcome.engine.sha256))
    client.log_artifact(run_id, str(file), "engine")
    tags = {
        "crossgrade.record": copy.record.id,
        "crossgrade.created": copy.record.created.isoformat(),
        "crossgrade.decision": copy.record.decision.digest,
        "crossgrade.engine_sha256": outcome.engine.sha256,
        "crossgrade.cell": outcome.cell.name,
    }
    source = f"{client.get_run(run_id).info.artifact_uri}/engine"
    return client.create_model_version(name, source, run_id, tags, description=copy.record.decision.summary, await_creation_for=0)


def _ensure_model(copy: Copy) -> None:
    from mlflow.exceptions import MlflowException

    model = copy.record.model
    try:
        copy.client.create_registered_model(model.id, description=f"{model.title}. {model.task}. License: {model.license}.")
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _holder(copy: Copy, alias: str) -> "ModelVersion | None":
    """The version an alias points to, or None."""
    from mlflow.exceptions import MlflowException

    try:
        return copy.client.get_model_version_by_alias(copy.record.model.id, alias)
    except MlflowException as error:
        if error.error_code not in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"):
            raise
        return None


def _newer(holder: "ModelVersion | None", copy: Copy) -> bool:
    """Whether an alias is held by a later record: publishing an old one again does not take it."""
    return holder is not None and holder.tags.get("crossgrade.created", "") > copy.record.created.isoformat()
