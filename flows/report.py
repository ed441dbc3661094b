"""Where people look: plots beside the record, a copy in MLflow, the artifact and the question of a Prefect run."""

import logging
import os
import re
from collections.abc import Sequence

from prefect.artifacts import acreate_markdown_artifact
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound

from tasks.errors import PipelineError
from tasks.facts import Night, Record
from tasks.publish import default_uri, publish
from tasks.report.markdown import markdown
from tasks.report.plots import plot_files
from tasks.store import Store

log = logging.getLogger("crossgrade")
TITLES = {
    "accuracy-cost.png": "Accuracy against cost",
    "cost.png": "Cost of a million inferences",
    "latency.png": "Latency",
}


def deliver(record: Record, store: Store) -> None:
    """Draw the plots beside the record and copy it to MLflow. The record is safe already: a server that is away is said, not raised."""
    plot_files(record, store)
    try:
        address = to_mlflow(record, store)
        log.info("in MLflow: %s", address or f"experiment crossgrade/{record.model.id}; `crossgrade up` shows it")
    except PipelineError as error:
        log.warning("the record is safe, MLflow has no copy yet: %s Then: crossgrade record push %s", error, record.id)


def to_mlflow(record: Record, store: Store) -> str:
    """Publish where $MLFLOW_TRACKING_URI or a running `crossgrade up` is, else into this home's database; returns the run's address."""
    return publish(record, store, _tracking_uri(store))


async def in_prefect(record: Record, store: Store) -> None:
    """Put the decision card on the run's page, and ask for approval where there is something to approve."""
    images = {TITLES[path.name]: path.read_bytes() for path in plot_files(record, store) if path.name in TITLES}
    await acreate_markdown_artifact(
        key=re.sub(r"[^a-z0-9]+", "-", f"migration-{record.model.id}"),  # by model: the artifact's own page is the model's history
        markdown=markdown(record, store, images=images),
        description=f"{record.id}: {record.decision.summary}",
    )
    if record.decision.verdict == "propose":
        await _ask(record)


async def _ask(record: Record) -> None:
    """Start the approval: a run of its own that waits suspended and holds no device."""
    try:
        asked = await arun_deployment("approve/approve", parameters={"record": record.id}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        log.warning("the deployment approve/approve is not there: approve with: crossgrade approve %s --as NAME", record.id)
    else:
        log.info("approval is asked for in flow run %s", asked.name)


def nights_in_markdown(found: Sequence[Night]) -> str:
    """Tonight's verdict on each approved migration."""
    rows = [f"| {night.record} | **{night.verdict}** | {night.detail} | {'; '.join(night.changes) or 'nothing'} |" for night in found]
    return "\n".join(
        ["# Approved migrations, measured again", "", "| record | verdict | in words | changed since |", "|---|---|---|---|", *rows]
    )


def _tracking_uri(store: Store) -> str:
    from flows.servers import addresses

    up = addresses(store.root)
    return os.environ.get("MLFLOW_TRACKING_URI") or (up.mlflow if up else default_uri(store))
