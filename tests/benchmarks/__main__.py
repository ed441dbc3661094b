"""Measure ourselves: `make bench`, or `make bench ONLY=harness_overhead_ns`. Prints a table, writes build/bench.json."""

import json
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.figure import Figure

OUT = Path(__file__).resolve().parents[2] / "build" / "bench.json"


def _at(where: str) -> Callable[[], Figure]:
    """A figure's function, imported when it is called: the table is there at once, and a missing library costs one row."""
    module, _, function = where.partition(":")

    def figure() -> Figure:
        return getattr(import_module(f"tests.benchmarks.{module}"), function)()

    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "harness_overhead_ns": _at("harness:overhead"),
    "p50_ratio_benchmark_app": _at("peers:p50_ratio"),
    "orchestration_ratio": _at("pipeline:orchestration_ratio"),
    "second_run_ratio": _at("pipeline:second_run_ratio"),
}


def main(arguments: list[str]) -> int:
    """Run all figures or those named; 1 when a goal is missed or a figure could not be measured."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    only = [argument.removeprefix("ONLY=") for argument in arguments] or os.environ.get("ONLY", "").split()
    if unknown := set(only) - set(FIGURES):
        Console(stderr=True).print(f"no figure {', '.join(sorted(unknown))}; known: {', '.join(FIGURES)}")
        return 2
    figures = [_run(name) for name in only or FIGURES]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(_table(figures))
    return 0 if all(figure.met for figure in figures) else 1


def _run(name: str) -> Figure:
    """One figure; whatever stops it becomes its detail, so that the others are still measured."""
    try:
        return replace(FIGURES[name](), name=name)
    except Exception as error:  # noqa: BLE001  a benchmark reports, it does not handle
        return Figure(name=name, unit="", goal="", detail=f"not measured: {type(error).__name__}: {error}")


def _table(figures: list[Figure]) -> Table:
    table = Table("figure", "value", "95% interval", "goal", "met", "detail", title=figures[0].machine)
    for figure in figures:
        value, ends = _number(figure.value), f"{_number(figure.low)} to {_number(figure.high)}"
        met = {True: "yes", False: "NO", None: "unknown"}[figure.met]
        table.add_row(figure.name, f"{value} {figure.unit}", ends if figure.low is not None else "", figure.goal, met, figure.detail)
    return table


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
