"""The runs of a record in MLflow: one parent for the migration, one child for each cell, each logged in one call."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tasks.cell_run import metrics_of, params_of, write_samples
from tasks.facts import Evidence, Record
from tasks.report.markdown import markdown
from tasks.report.plots import plot_files
from tasks.report.rows import Row, rows
from tasks.schema import dump
from tasks.store import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient

NOTE_CHARACTERS = 7900  # MLflow keeps 8,000 of a tag; the whole text is the artifact decision.md


class Copy(NamedTuple):
    """A record on its way into MLflow."""

    client: "MlflowClient"
    record: Record
    store: Store
    scratch: Path

    def find(self, experiment_id: str) -> str | None:
        """The run of a finished copy. One that was cut short is removed with its children."""
        mine = f"tags.`crossgrade.record` = '{self.record.id}' and tags.`crossgrade.kind` = 'migration'"
        for run in self.client.search_runs([experiment_id], mine):
            if run.info.status == "FINISHED":
                return run.info.run_id
            for run_id in [*self.children(experiment_id, run.info.run_id).values(), run.info.run_id]:
                self.client.delete_run(run_id)
        return None

    def children(self, experiment_id: str, parent: str) -> dict[str, str]:
        """Cell digest -> child run."""
        found = self.client.search_runs([experiment_id], f"tags.`mlflow.parentRunId` = '{parent}'")
        return {run.data.tags["crossgrade.cell"]: run.info.run_id for run in found}

    def write(self, experiment_id: str) -> str:
        """A new copy; the parent ends last, so that a run that has ended is whole."""
        record, told = self.record, rows(self.record, self.store)
        tags = {"crossgrade.record": record.id, "crossgrade.kind": "migration"}
        parent = self.client.create_run(experiment_id, _ms(record.created), tags, record.id).info.run_id
        for row in told:
            self._write_child(experiment_id, parent, row)
        policy, baseline = record.request.policy.name, record.request.baseline.name
        params = {"model": record.model.id, "baseline": baseline, "policy": policy, "verdict": record.decision.verdict}
        self._log(parent, params, _saving(told), record.created)
        for path in plot_files(record, self.store):
            self.client.log_artifact(parent, str(path), "plots")
        ends = [outcome.measured for outcome in record.outcomes if isinstance(outcome, Evidence)]
        self.client.set_terminated(parent, "FINISHED", _ms(max([record.created, *ends])))
        return parent

    def bring_up_to_date(self, parent: str, children: dict[str, str]) -> None:
        """What an approval changes: status, note, and the record itself. Costs four calls, so it is done every time."""
        record = self.record
        measured = [outcome.cell.digest for outcome in record.outcomes if isinstance(outcome, Evidence)]
        run_ids = [children[digest] for digest in measured if digest in children]
        path = _compare_path(self.client.get_run(parent).info.experiment_id, run_ids)
        text = markdown(record, self.store, links={"compare all cells": f"#{path}&workflowType=machine_learning"})
        (self.scratch / "record.json").write_bytes(dump(record))
        (self.scratch / "decision.md").write_text(text, encoding="utf-8")
        for name in ("record.json", "decision.md"):
            self.client.log_artifact(parent, str(self.scratch / name))
        last = record.approvals[-1] if record.approvals else None
        tags = {
            "mlflow.note.content": _fitting(text),
            "crossgrade.status": record.status,
            "crossgrade.decision": record.decision.digest,
            "crossgrade.recommended": record.decision.recommended or "",
            "crossgrade.approver": last.approver if last else "",
            "crossgrade.compare": f"#{path}&workflowType=machine_learning",
        }
        self._tag(parent, tags)

    def _write_child(self, experiment_id: str, parent: str, row: Row) -> None:
        outcome, record = row.outcome, self.record
        evidence = outcome if isinstance(outcome, Evidence) else None
        begin = evidence.timing.repeats[0].started if evidence and evidence.timing.repeats else record.created
        tags = {
            "mlflow.parentRunId": parent,
            "crossgrade.record": record.id,
            "crossgrade.kind": "cell",
            "crossgrade.cell": outcome.cell.digest,
            "crossgrade.simulated": str(outcome.cell.target.simulated).lower(),
            "mlflow.note.content": row.why,
        }
        run_id = self.client.create_run(experiment_id, _ms(begin), tags, row.cell).info.run_id
        end = evidence.measured if evidence else record.created
        self._log(run_id, params_of(row, record), metrics_of(row, record, self.store), end)
        if evidence and (path := write_samples(evidence, self.store, self.scratch / "samples.npz")):
            self.client.log_artifact(run_id, str(path))
        self.client.set_terminated(run_id, "FINISHED" if evidence else "FAILED", _ms(max(begin, end)))

    def _log(self, run_id: str, params: dict[str, str], metrics: dict[str, float], at: datetime) -> None:
        from mlflow.entities import Metric, Param

        made = [Metric(name, value, _ms(at), 0) for name, value in metrics.items()]
        self.client.log_batch(run_id, made, [Param(name, value) for name, value in params.items()])

    def _tag(self, run_id: str, tags: dict[str, str]) -> None:
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])


def _saving(told: list[Row]) -> dict[str, float]:
    before, after = (next((row.cost for row in told if row.state == state), None) for state in ("baseline", "recommended"))
    counts = {"cells": float(len(told)), "cells_measured": float(sum(isinstance(row.outcome, Evidence) for row in told))}
    if not (before and after):
        return counts
    old, new = float(before.usd_per_million), float(after.usd_per_million)
    return counts | {"usd_per_million_before": old, "usd_per_million_after": new, "saving_percent": 100 * (1 - new / old)}


def _compare_path(experiment_id: str, run_ids: list[str]) -> str:
    """Where MLflow compares runs: parallel coordinates, scatter and box plots."""
    ids, experiments = (quote(json.dumps(value, separators=(",", ":"))) for value in (run_ids, [experiment_id]))
    return f"/compare-runs?runs={ids}&experiments={experiments}"


def _fitting(text: str) -> str:
    """As many whole lines as a tag holds."""
    if len(text) <= NOTE_CHARACTERS:
        return text
    return text[:NOTE_CHARACTERS].rpartition("\n")[0] + "\n\n(the rest is in the artifact decision.md)"


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)
