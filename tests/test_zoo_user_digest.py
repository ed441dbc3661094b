"""Whatever could change a user's model or how it is judged changes its digest: a cache never answers for another model."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from zoo_builders import ROWS, save_data, save_linear, writer

from model_zoo.facts import Entry
from tasks.errors import BadModel, BadRequest

NET = """import torch
from {helper} import scale

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("line", torch.full((4,), 2.0), persistent=False)

    def forward(self, x):
        return scale(x @ self.line)

def build():
    return Net()
"""


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Entry]:
    """Writes $CROSSGRADE_MODELS and returns the entry `mine`; bytecode would outlive a change within one second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return writer(tmp_path, monkeypatch)


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Modules as a new process finds them."""

    def drop(*names: str) -> None:
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)

    return drop


@pytest.mark.parametrize(
    "line", ['output = "logits"', 'label = "kind"', 'text = "words"', "threshold = 0.7", "max_tokens = 64", "size = [4, 4]",
             "mean = [0.5]", "std = [0.5]", "batch = 4", 'metric = "exact"', 'columns = { x = ["a", "b"] }']
)  # fmt: skip
def test_every_field_of_a_table_is_in_the_digest(line: str, toml, tmp_path: Path):
    """One more line in the table is another model to judge."""
    save_data(tmp_path / "data.npz", save_linear(tmp_path / "m.onnx"))
    text = '[mine]\nonnx = "m.onnx"\ndata = "data.npz"\n'
    same = toml(text).spec.digest
    assert toml(text).spec.digest == same
    assert toml(f"{text}{line}\n").spec.digest != same


@pytest.mark.parametrize("changed", ["digest_net", "digest_helper", "buffer"])
def test_the_code_of_a_torch_model_is_in_the_digest(changed: str, toml, forget, tmp_path: Path):
    """forward(), a function that it imports from beside it, and a buffer that state_dict() leaves out all count."""
    net, helper = tmp_path / "digest_net.py", tmp_path / "digest_helper.py"
    net.write_text(NET.format(helper="digest_helper"))
    helper.write_text("def scale(x):\n    return 1 * x\n")
    np.savez(tmp_path / "data.npz", x=np.random.RandomState(0).randn(ROWS, 4), labels=np.zeros(ROWS))
    text = '[mine]\ntorch = "digest_net:build"\ndata = "data.npz"\nmetric = "mean_absolute_error"\n'
    forget("digest_net", "digest_helper")
    before = toml(text).spec
    forget("digest_net", "digest_helper")
    assert toml(text).spec.digest == before.digest
    forget("digest_net", "digest_helper")
    if changed == "digest_helper":
        helper.write_text("def scale(x):\n    return 3 * x\n")
    else:
        old, new = ("@", "* 0 @") if changed == "digest_net" else ("2.0", "3.0")
        net.write_text(net.read_text().replace(old, new))
    after = toml(text).spec
    assert after.digest != before.digest
    assert (after.files["state_dict"] != before.files["state_dict"]) == (changed == "buffer")


def test_code_that_changed_after_its_import_is_refused(toml, forget, tmp_path: Path):
    """A process that goes on with old code must not file its results under the new."""
    (tmp_path / "digest_late.py").write_text("import torch\n\ndef build():\n    return torch.nn.Flatten()\n")
    np.savez(tmp_path / "data.npz", input=np.random.RandomState(0).randn(ROWS, 4))
    text = '[mine]\ntorch = "digest_late:build"\ndata = "data.npz"\n'
    forget("digest_late")
    toml(text)
    (tmp_path / "digest_late.py").write_text("import torch\n\ndef build():\n    return torch.nn.ReLU()\n")
    with pytest.raises(BadRequest, match="changed after they were imported"):
        toml(text)


def test_a_users_own_entry_is_pinned_by_its_code_and_table(toml, forget, tmp_path: Path):
    """An entry that a function returns gets the digests of its sources and table; the user's object is left as it was."""
    code = "from copy import copy\nfrom model_zoo.silero_vad import ENTRY\n\nOWN = copy(ENTRY)\n"
    code += "OWN.spec = ENTRY.spec.model_copy(update={'id': 'mine'})\n\ndef build():\n    return OWN\n"
    (tmp_path / "digest_entry.py").write_text(code)
    forget("digest_entry")
    first = toml('[mine]\ntorch = "digest_entry:build"\n')
    assert {"sources", "table"} <= set(first.spec.files)
    assert "sources" not in sys.modules["digest_entry"].OWN.spec.files
    assert toml('[mine]\ntorch = "digest_entry:build"\nthreshold = 0.7\n').spec.digest != first.spec.digest
    (tmp_path / "digest_entry.py").write_text(code + "# another\n")
    forget("digest_entry")
    assert toml('[mine]\ntorch = "digest_entry:build"\n').spec.digest != first.spec.digest


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def build(:\n", "ends in SyntaxError"),
        ("raise KeyError('weights')\n", "ends in KeyError: 'weights'"),
        ("import sys\nsys.exit(3)\n", "ends in SystemExit: 3"),
        ("def build():\n    raise SystemExit('no GPU')\n", "ends in SystemExit: no GPU"),
        ("def build():\n    return {}['weights']\n", "ends in KeyError"),
        ("class Own:\n    spec = 'spec'\nbuild = Own\n", "without a ModelSpec"),
        ("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return {'y': x}\nbuild = Net\n", "gives dict"),
        ("import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return {}[1]\nbuild = Net\n", "does not run on x"),
    ],
)
def test_torch_code_that_fails(code: str, message: str, toml, forget, tmp_path: Path):
    """Whatever a user's code does, the table is named in a sentence, and other models can still be listed."""
    (tmp_path / "digest_broken.py").write_text(code)
    np.savez(tmp_path / "data.npz", x=np.random.RandomState(0).randn(ROWS, 4))
    forget("digest_broken")
    with pytest.raises(BadModel, match=message):
        toml('[mine]\ntorch = "digest_broken:build"\ndata = "data.npz"\n')
