"""One figure about ourselves."""

from dataclasses import dataclass, field

from tasks.host import this_host


def machine() -> str:
    """Where a figure was measured: '2 x AMD EPYC, Linux 6.18'."""
    host = this_host(())
    return f"{host.cores} x {host.cpu}, {host.memory_gib:g} GiB, {host.os}, Python {host.python}"


@dataclass(frozen=True)
class Figure:
    """A number with its interval and the goal it is held against.

    Attributes:
        value, low, high: in `unit`; None when it could not be measured, and then `detail` says why.
        goal: in words.
        met: None when there is no number.
    """

    name: str
    unit: str
    goal: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    met: bool | None = None
    detail: str = ""
    machine: str = field(default_factory=machine)
