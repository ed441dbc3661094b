"""OpenVINO on this machine's processor. The engine is its IR, XML and weights, in one tar file; it is compiled when opened."""

import io
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tasks.backends.base import Built, Tensors, checked, in_words_of, refusal, words_of
from tasks.errors import BadArtifact, Unsupported, WrongDevice
from tasks.facts import Cell, Placement, TensorSpec

if TYPE_CHECKING:
    import openvino

FORMAT = "openvino"
PARTS = ("model.xml", "model.bin")
MULTIPLY = ("Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNSeq", "RNNCell")  # layers that decide the precision


class OpenVinoBackend:
    """OpenVINO's CPU plugin."""

    name = "openvino"
    wants: Literal["onnx", "pt2"] = "onnx"
    distributions: tuple[str, ...] = ("openvino",)

    def missing(self, cell: Cell) -> str | None:
        return refusal(cell, self, {"openvino": "intel"})

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """Convert ONNX, or take a packed IR, and compile it once to see that the plugin can."""
        import openvino as ov

        with in_words_of("OpenVINO", "converting the graph"):
            model = unpack(source) if tarfile.is_tarfile(source) else ov.Core().read_model(source)
        pack(model, out)
        with self.open(out, cell) as session:
            return Built(format=FORMAT, notes={"executes": session.placement.precision, "device": "CPU"})

    @contextmanager
    def open(self, engine: Path, cell: Cell) -> Iterator["OpenVinoSession"]:
        import openvino as ov

        with in_words_of("OpenVINO", "compiling the graph"):
            compiled = ov.Core().compile_model(unpack(engine), "CPU", properties(cell))
        verify(compiled, cell)
        yield OpenVinoSession(compiled, placement_of(compiled, cell))


class OpenVinoSession:
    """One infer request. Inputs are read from host memory and outputs left in it, both by the plugin itself: host to host.

    `start_async` and `wait` are what benchmark_app times; the convenience `infer(inputs)` adds 0.1 to 0.3 ms of Python for each call.
    """

    def __init__(self, compiled: "openvino.CompiledModel", placement: Placement) -> None:
        self.placement = placement
        self._request = compiled.create_infer_request()
        self._specs = tuple(_spec(port) for port in compiled.inputs)
        self._outputs = [(index, port.get_any_name()) for index, port in enumerate(compiled.outputs)]
        self._held: list[np.ndarray] = []  # the request does not keep its inputs alive

    def bind(self, inputs: Tensors) -> None:
        import openvino as ov

        self._held = list(checked(inputs, self._specs).values())
        for index, array in enumerate(self._held):
            self._request.set_input_tensor(index, ov.Tensor(array, shared_memory=True))

    def step(self) -> None:
        try:
            self._request.start_async()
            self._request.wait()
        except Exception as error:
            raise Unsupported(f"OpenVINO failed to run the graph: {words_of(error)}") from error

    def read(self) -> dict[str, np.ndarray]:
        return {name: self._request.get_output_tensor(index).data.copy() for index, name in self._outputs}


def properties(cell: Cell) -> dict[str, Any]:
    """Every choice is made here: OpenVINO's default precision is bfloat16 where the processor has it, whatever the model says."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": cell.target.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # the measuring process is pinned already
    }


def verify(compiled: "openvino.CompiledModel", cell: Cell) -> None:
    """Read back what the plugin really took; raises WrongDevice."""
    got = {
        "execution device": ",".join(compiled.get_property("EXECUTION_DEVICES")),
        "precision": compiled.get_property("INFERENCE_PRECISION_HINT").to_string(),
        "threads": compiled.get_property("INFERENCE_NUM_THREADS"),
        "streams": compiled.get_property("NUM_STREAMS"),
    }
    wanted = {"execution device": "CPU", "precision": "f32", "threads": cell.target.threads, "streams": 1}
    wrong = [f"{name} {got[name]} instead of {wanted[name]}" for name in wanted if got[name] != wanted[name]]
    if wrong:
        raise WrongDevice(f"OpenVINO took {', '.join(wrong)}", "give the target no more threads than the machine has cores")


def placement_of(compiled: "openvino.CompiledModel", cell: Cell) -> Placement:
    """What the execution graph says: the plugin runs all of it or refuses to compile, so nothing is elsewhere."""
    nodes = [op.get_rt_info() for op in compiled.get_runtime_model().get_ops()]
    layers = [info for info in nodes if _text(info, "layerType") not in ("Input", "Output", "Const")]
    low = Counter(_text(info, "layerType") for info in layers if _text(info, "runtimePrecision") in ("u8", "i8", "u4", "i4"))
    kernels = {kind: count for kind, count in sorted(low.items()) if kind in MULTIPLY}
    text = f"int8: {', '.join(f'{kind} {count}' for kind, count in kernels.items())} of {len(layers)} layers" if kernels else "fp32"
    return Placement(
        device=cell.target.device,
        providers=tuple(compiled.get_property("EXECUTION_DEVICES")),
        precision=text,
        threads=compiled.get_property("INFERENCE_NUM_THREADS"),
        nodes=len(layers),
        nodes_elsewhere=0,
        elsewhere=(),
    )


def pack(model: "openvino.Model", out: Path) -> None:
    """Write a model's IR into one tar file, weights uncompressed."""
    import openvino as ov

    folder = out.with_suffix(".ir")
    folder.mkdir()
    try:
        with in_words_of("OpenVINO", "saving the graph"):
            ov.save_model(model, folder / PARTS[0], compress_to_fp16=False)
        with tarfile.open(out, "w") as archive:
            for name in PARTS:
                info, data = tarfile.TarInfo(name), (folder / name).read_bytes()
                info.size = len(data)  # and no time or owner: equal models give equal files
                archive.addfile(info, io.BytesIO(data))
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def unpack(engine: Path) -> "openvino.Model":
    """The model in a packed IR; read from memory, so that nothing is ever extracted. Raises BadArtifact."""
    import openvino as ov

    try:
        with tarfile.open(engine) as archive:
            members = [archive.extractfile(name) for name in PARTS]
            xml, weights = (member.read() if member else b"" for member in members)
    except (tarfile.TarError, KeyError) as error:
        raise BadArtifact(f"{engine.name} is not a packed OpenVINO IR: {words_of(error)}", "build the engine again") from error
    with in_words_of("OpenVINO", "reading the packed graph"):
        return ov.Core().read_model(xml, weights)


def _text(info: Any, name: str) -> str:
    return str(info[name].astype(str))


def _spec(port: "openvino.ConstOutput") -> TensorSpec:
    shape = tuple(d.get_length() if d.is_static else str(d) for d in port.get_partial_shape())
    return TensorSpec(name=port.get_any_name(), dtype=np.dtype(port.get_element_type().to_dtype()).name, shape=shape)


BACKEND = OpenVinoBackend()
