"""Rules of the code that a reader may rely on."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("flows", "tasks", "model_zoo")
HEAVY = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "nncf", "mlflow", "matplotlib", "sklearn", "scipy", "pandas")
SOURCES = sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_the_mlflow_folder_never_hides_the_library():
    """mlflow/ holds configuration alone; from the root, `import mlflow` is the library."""
    assert not list((ROOT / "mlflow").rglob("*.py"))
    assert not (ROOT / "tests" / "mlflow").exists()
    done = python("import mlflow; print(mlflow.__file__)")
    assert "site-packages" in done.stdout, done.stderr


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path):
    """250 lines a file (the vocabulary alone may be longer), 45 lines a function, docstring included."""
    text = path.read_text()
    assert path.name == "facts.py" or text.count("\n") <= 250
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 50, f"{node.name} is too long"


def test_no_module_carries_the_name_of_a_library_it_imports():
    """A file named like a library would hide it from whoever runs beside it."""
    for path in SOURCES:
        imported = {
            (alias.name if isinstance(node, ast.Import) else node.module or "").split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert path.stem not in imported - set(OURS), path


def test_importing_our_modules_loads_nothing_heavy():
    """Every child process and every `--help` pays for what is imported at the top; files that are torch networks are imported when used."""
    networks = ("__main__.py", "_net.py", "_modules.py")
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SOURCES if not path.name.endswith(networks)]
    modules = [name.removesuffix(".__init__") for name in modules]
    done = python(f"import sys\nfor name in {modules}: __import__(name)\nprint([n for n in {HEAVY} if n in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_only_flows_and_stages_know_prefect():
    """The core runs without an orchestrator."""
    for path in SOURCES:
        if path.parts[-2] != "flows" and path.name != "stages.py":
            assert "import prefect" not in path.read_text(), path
            assert "from prefect" not in path.read_text(), path


def test_layers_hold():
    """flows > tasks > model_zoo, and no stage imports another (import-linter)."""
    done = subprocess.run([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_code_follows_the_rules_and_the_format():
    """ruff, as configured in pyproject.toml."""
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *OURS, "tests"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_packages_are_written_out():
    """setuptools finds every package that exists."""
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    assert listed == {".".join(path.parent.relative_to(ROOT).parts) for path in SOURCES if path.name == "__init__.py"}


def test_the_repository_speaks_of_the_product_alone():
    """No word of how or where it was made, and no registry of a workplace."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    words = ["/work" + "/", "sub" + "agent", "helper " + "session", ".lib" + "rary"]
    for name in tracked:
        path = ROOT / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".yaml", ".csv", ".txt", ".sh", ""}:
            text = path.read_text(errors="ignore")
            assert not [word for word in words if word in text], name
