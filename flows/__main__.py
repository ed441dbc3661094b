"""The command line: the same flows without servers, and `up` for those who want them.

Heavy imports live inside the commands: `crossgrade --help` answers at once.
"""

import asyncio
import logging
import sys
from pathlib import Path
from time import perf_counter

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from flows.endings import FAILED, clear_errors
from tasks.errors import BadRequest, PipelineError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__.splitlines()[0], pretty_exceptions_enable=False)
records = typer.Typer(no_args_is_help=True, help="Records: list them, publish one to MLflow again.")
app.add_typer(records, name="record")
console = Console() if sys.stdout.isatty() else Console(width=120)


@app.command()
def migrate(
    model: str = typer.Argument(None, help="a model of `crossgrade zoo`, or your own"),
    baseline: str = typer.Option("ort/fp32@cpu-2core", help="what serves it today: backend/recipe@target"),
    target: list[str] = typer.Option(["cpu-2core", "cpu-1core"], "--target", "-t", help="where it might move to; repeat"),
    backend: list[str] = typer.Option(["ort", "openvino", "inductor"], "--backend", "-b", help="runtimes to try; repeat"),
    recipe: list[str] = typer.Option([], "--recipe", "-r", help="precision recipes to try; repeat; default: the whole ladder"),
    policy: str = typer.Option("default", help="a policy of deployments/policies.toml"),
    slo_ms: float = typer.Option(50.0, help="latency limit in milliseconds, host to host at batch 1"),
    slo_percentile: int = typer.Option(99, help="which percentile must meet it: 50, 90, 95 or 99"),
    request: Path = typer.Option(None, help="a request file (deployments/requests/*.toml) instead of the options"),
) -> None:
    """Find out whether a model may move, and show the decision. The same command resumes after a crash."""
    with clear_errors():
        from flows.migrate import in_this_process, migration
        from tasks.catalog import Ask, ask_from, read_ask
        from tasks.report.card import show_card
        from tasks.store import Store

        if (request is None) == (model is None):
            raise BadRequest("give a model or a request file, one of the two", "crossgrade migrate silero-vad, or --request FILE")
        words = {"model": model, "baseline": baseline, "targets": target, "backends": backend, "recipes": recipe, "policy": policy}
        ask: Ask = read_ask(request) if request else ask_from({**words, "slo": {"latency_ms": slo_ms, "percentile": slo_percentile}})
        narrate()
        store = Store()
        done = asyncio.run(migration(ask, store, in_this_process))
        show_card(done, store, console)


@app.command()
def show(record: str = typer.Argument("latest", help="a record's file, its id, or 'latest'")) -> None:
    """Show a record's decision card."""
    with clear_errors():
        from tasks.record import read
        from tasks.report.card import show_card
        from tasks.store import Store

        store = Store()
        show_card(read(record, store), store, console)


@app.command()
def approve(
    record: str = typer.Argument("latest", help="a record's file, its id, or 'latest'"),
    approver: str = typer.Option(..., "--as", help="your name: it goes into the record"),
    reject: bool = typer.Option(False, "--reject", help="reject instead"),
    comment: str = typer.Option("", help="why; it goes into the record"),
    yes: bool = typer.Option(False, "--yes", "-y", help="do not ask: for scripts"),
) -> None:
    """Approve (or reject) the decision that a record shows. Stale evidence is refused."""
    with clear_errors():
        from flows.approve import answer
        from tasks.record import read
        from tasks.store import Store

        store = Store()
        shown = read(record, store)
        console.print(f"{shown.id} ({shown.status}): {shown.decision.summary}", highlight=False, markup=False)
        if not reject and shown.status != "proposed":
            raise BadRequest(f"record {shown.id} is {shown.status}", "only a proposal that waits for an answer can be approved")
        if not yes and not typer.confirm("Reject it?" if reject else "Approve it?"):
            raise typer.Exit(FAILED)
        done, stale = answer(shown.id, not reject, approver, comment, store, "cli", shown=shown.decision.digest)
        if stale:
            console.print(f"Stale: {'; '.join(stale)}. Measure again: crossgrade migrate", highlight=False, markup=False)
            raise typer.Exit(FAILED)
        console.print(Text.assemble(f"{done.id}: ", (done.status, "bold"), f" by {approver}"))


@app.command()
def nightly(model: list[str] = typer.Option([], "--model", "-m", help="only these models; default: all that have a champion")) -> None:
    """Measure every approved migration again; a regression re-opens its approval."""
    with clear_errors():
        from flows.nightly import remeasure_all
        from tasks.store import Store

        narrate()
        for line in remeasure_all(model, Store()):
            console.print(line, markup=False, highlight=False)


@app.command()
def zoo() -> None:
    """Models that can be migrated."""
    with clear_errors():
        from model_zoo import entry, names

        table = Table(Column("model", no_wrap=True), "what", "one request", "metric", "weights", title="Model zoo", title_justify="left")
        shown = []
        for name in names():
            try:
                spec = entry(name).spec
            except PipelineError as error:
                table.add_row(Text(name), Text(str(error), style="dim"))
            else:
                shown += [(name, spec.terms)] if spec.terms else []
                words = (name, spec.title, spec.request, spec.metric.name, f"{spec.source} ({spec.license})")
                table.add_row(*map(Text, words))
        console.print(table)
        for name, terms in shown:
            console.print(Text.assemble("  ", (name, "bold"), f"  {terms}"))


@app.command()
def targets() -> None:
    """Devices under a name and a price."""
    with clear_errors():
        from flows.doctor import targets_table

        console.print(targets_table())


@app.command()
def recipes() -> None:
    """Precision recipes: the ladder that is tried."""
    with clear_errors():
        from tasks import catalog

        table = Table(Column("recipe", no_wrap=True), "how", "runtimes", "what it does", title="Recipes", title_justify="left")
        for recipe in catalog.recipes().values():
            how = " ".join(filter(None, [recipe.method, recipe.calibration.replace("none", "")]))
            table.add_row(*map(Text, (recipe.name, how, ", ".join(recipe.backends) or "all", recipe.note)))
        console.print(table)


@app.command()
def doctor() -> None:
    """Which backends and targets work here, and what each missing one needs."""
    with clear_errors():
        from flows.doctor import examine

        examine(console)


@app.command()
def up(
    prefect_port: int = typer.Option(4200, help="port of the Prefect server"),
    mlflow_port: int = typer.Option(5000, help="port of the MLflow server"),
    host: str = typer.Option("127.0.0.1", help="address to bind to; anything but loopback needs authentication"),
) -> None:
    """Start Prefect, MLflow and a worker per local target; Ctrl-C stops all of it and loses nothing."""
    with clear_errors():
        from flows.servers import up as start

        start(host=host, prefect_port=prefect_port, mlflow_port=mlflow_port, console=console)


@records.command("list")
def list_records() -> None:
    """Records in this home, newest first."""
    with clear_errors():
        from tasks.record import records as all_records
        from tasks.store import Store

        table = Table("record", "model", "status", "decision")
        for record in all_records(Store()):
            table.add_row(*map(Text, (record.id, record.model.id, record.status, record.decision.summary)))
        console.print(table)


@records.command()
def push(record: str = typer.Argument("latest", help="a record's file, its id, 'latest', or 'all'")) -> None:
    """Publish a record to MLflow; publishing twice makes one run."""
    with clear_errors():
        from flows.report import to_mlflow
        from tasks.record import read
        from tasks.record import records as all_records
        from tasks.store import Store

        store = Store()
        for one in all_records(store) if record == "all" else [read(record, store)]:
            console.print(
                f"{one.id}: {to_mlflow(one, store) or 'copied to ' + str(store.root / 'mlflow.db')}", markup=False, highlight=False
            )


def narrate() -> None:
    """Progress on the terminal: what the pipeline says, with the seconds since the start."""
    began = perf_counter()

    class Elapsed(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"{perf_counter() - began:6.1f} s  {record.getMessage()}"

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Elapsed())
    logger = logging.getLogger("crossgrade")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)


def main() -> None:
    """Entry point of the `crossgrade` command."""
    app()


if __name__ == "__main__":
    main()
