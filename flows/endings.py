"""How a command ends: well, or with one line that says what was wrong, and an exit status that scripts can tell apart."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from tasks.errors import BadRequest, PipelineError

INTERRUPTED, FAILED, BAD_INPUT = 130, 1, 2


@contextmanager
def clear_errors() -> Iterator[None]:
    """What went wrong as one line instead of a traceback; Ctrl-C leaves nothing half-written and nobody running."""
    # asyncio would only cancel a task that never yields; raising at once is what a person expects.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except PipelineError as error:
        _end(str(error), error, BAD_INPUT if isinstance(error, BadRequest) else FAILED)
    except (typer.Exit, typer.Abort, BrokenPipeError):  # ends that typer knows
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _end(f"{error.strerror or error}{where}. What was finished is kept; the same command goes on from there.", error, FAILED)
    except Exception as error:  # noqa: BLE001  the last line of defence: a person gets one line
        said = " ".join(str(error).split())[:500]
        hint = "This is a bug of Crossgrade: set CROSSGRADE_TRACEBACK=1 to see where."
        _end(f"{type(error).__name__}: {said}. {hint}", error, FAILED)
    except KeyboardInterrupt:
        Console(stderr=True).print("\nStopped. What had been finished is kept; the same command goes on from there.")
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # not sys.exit: waiting builds are killed by the kernel with their parent


def _end(line: str, error: Exception, status: int) -> NoReturn:
    """Say it in one line, or with everything behind it where that was asked for."""
    if os.environ.get("CROSSGRADE_TRACEBACK"):
        raise error
    Console(stderr=True).print(Text.assemble(("crossgrade", "bold red"), f": {line}"), soft_wrap=True)
    sys.exit(status)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
