"""How commands end when something is wrong: one line, a status, nothing published, nothing in the way of the next try."""

import errno

import pytest
import typer
from rich.console import Console

from flows import __main__ as cli
from flows.endings import BAD_INPUT, FAILED, clear_errors
from flows.servers import check_port
from tasks.errors import BadRequest
from tasks.store import Store, home
from tests.fabricated import a_record
from tests.test_migration import run

ONE = ("migrate", "digits-cnn", "-t", "cpu-1core", "-b", "ort", "-r", "fp32", "--policy", "quick")


CODE = """
from tasks.errors import BadModel
from tests.builders import TinyEntry

class Entry(TinyEntry):
    def splits(self, store):
        {line}
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """One line, whatever the shell of whoever runs the tests says."""
    monkeypatch.delenv("CROSSGRADE_TRACEBACK", raising=False)


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/home/x/[objects]/ab"),
            FAILED,
            "No space left on device: /home/x/[objects]/ab.",
        ),
        (OSError(errno.EROFS, "Read-only file system"), FAILED, "Read-only file system. What was finished is kept"),
        (KeyError("[/x]"), FAILED, "KeyError: '[/x]'. This is a bug of Crossgrade: set CROSSGRADE_TRACEBACK=1"),
        (ValueError("two\nlines"), FAILED, "ValueError: two lines."),
        (BadRequest("no model '[/x]'"), BAD_INPUT, "no model '[/x]'"),
    ],
)
def test_whatever_is_raised_is_one_line_and_a_status(capsys, error, status, says):
    """Brackets are characters, line breaks blanks; the status is 1, or 2 for bad input."""
    with pytest.raises(SystemExit) as ended, clear_errors():
        raise error
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (status, 1)
    assert says in said


def test_the_traceback_can_be_asked_for(monkeypatch):
    """For who looks for the bug."""
    monkeypatch.setenv("CROSSGRADE_TRACEBACK", "1")
    with pytest.raises(KeyError), clear_errors():
        raise KeyError


def test_ends_that_are_no_errors_pass():
    """A chosen exit status is not an error."""
    with pytest.raises(typer.Exit) as ended, clear_errors():
        raise typer.Exit(FAILED)
    assert ended.value.exit_code == FAILED


def test_a_home_that_cannot_be_is_bad_input(monkeypatch, tmp_path):
    """A file, and the home of nobody."""
    (tmp_path / "file").touch()
    for wanted in (f"{tmp_path}/file", "~nosuch/x"):
        monkeypatch.setenv("CROSSGRADE_HOME", wanted)
        with pytest.raises(BadRequest, match="CROSSGRADE_HOME="):
            home()


@pytest.mark.parametrize(
    ("words", "env", "says"),
    [
        (ONE, {"CROSSGRADE_HOME": "/proc/x"}, "/proc/x"),
        (ONE, {"CROSSGRADE_LEASES": "/proc/version"}, "/proc/version"),
        (("approve", "latest", "--as", "Bo[/]b", "--yes"), {"CROSSGRADE_HOME": "/proc/version"}, "is a file"),
        (("up", "--host", "[/x]"), {}, "'[/x]' is not an IP address"),
        (("up", "--prefect-port", "99999"), {}, "99999 is not a port"),
        (("migrate", "[/x]"), {}, "no model '[/x]'"),
    ],
)
def test_no_place_and_no_name_ends_in_a_traceback(workplace, words, env, says):
    """Homes, leases, hosts, ports and names that cannot be."""
    status, output = run(*words, **env)
    assert status in (FAILED, BAD_INPUT), output
    assert says in output
    assert "Traceback" not in output
    assert "bug of Crossgrade" not in output


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port_is_refused(port):
    """Before a socket overflows."""
    with pytest.raises(BadRequest, match="is not a port. choose one from 1 to 65535 with --mlflow-port"):
        check_port("127.0.0.1", port, "--mlflow-port")


def test_a_name_in_brackets_is_shown_as_it_is(workplace, monkeypatch, capsys):
    """Whoever signs as Bo[/]b reads that name."""
    made = a_record(Store())
    monkeypatch.setattr("flows.approve.answer", lambda *_, **__: (made, []))
    monkeypatch.setattr("tasks.record.read", lambda *_: made)
    monkeypatch.setattr(cli, "console", Console(width=200))
    cli.approve("latest", approver="Bo[/]b", reject=False, comment="", yes=True)
    assert "by Bo[/]b" in capsys.readouterr().out


def test_bad_data_ends_the_migration_and_publishes_nothing(workplace):
    """Status 1 and one line; tried again it says the same, and with the data put right the same command succeeds."""
    code, place = workplace / "mine.py", workplace / "home"
    (workplace / "models.toml").write_text('[digits-cnn]\ntorch = "mine:Entry"\n')
    code.write_text(CODE.format(line="raise BadModel('row 3 of labels.csv has no label')"))
    for _ in range(2):
        status, output = run(*ONE)
        assert status == FAILED, output
        assert "the baseline ort/fp32@cpu-2core cannot be measured" in output.splitlines()[-1]
        assert "Traceback" not in output
        assert not (place / "records").exists()
        assert not (place / "mlflow.db").exists()
    code.write_text(CODE.format(line="return super().splits(store)"))
    status, output = run(*ONE)
    assert status == 0, output
    assert len(list((place / "records").iterdir())) == 1
    assert (place / "mlflow.db").exists()
