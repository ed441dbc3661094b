"""ONNX Runtime: its execution providers are instances of one class. The engine is the ONNX file itself."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tasks.backends.base import Built, Tensors, checked, in_words_of, refusal, words_of
from tasks.errors import Unsupported, WrongDevice
from tasks.facts import Cell, Placement, TensorSpec

if TYPE_CHECKING:
    import onnxruntime

LOW_PRECISION = {"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulNBits"}
EXECUTES = "crossgrade.executes"  # metadata of an engine: what its optimised graph computes in


class OrtBackend:
    """One execution provider of ONNX Runtime."""

    wants: Literal["onnx", "pt2"] = "onnx"
    distributions: tuple[str, ...] = ("onnxruntime",)

    def __init__(self, name: str, provider: str) -> None:
        self.name, self.provider = name, provider

    def missing(self, cell: Cell) -> str | None:
        return refusal(cell, self, {"onnxruntime": ""})

    def build(self, source: Path, cell: Cell, out: Path) -> Built:
        """Optimise the graph once, to see that it loads and which kernels it gets, and keep it with that knowledge in its metadata.

        A quantizer that returns without error may have written a graph that cannot be loaded, and Q/DQ pairs that no kernel took
        compute in FP32: only the optimised graph tells. The engine is not that graph, because it fits one processor alone.
        """
        import onnx

        optimised = out.with_suffix(".optimised")
        try:
            load(source, self.provider, cell.target.threads, optimised)
            executes = precision_of(node.op_type for node in onnx.load(optimised).graph.node)
        finally:
            optimised.unlink(missing_ok=True)
        model = onnx.load(source)
        onnx.helper.set_model_props(model, {p.key: p.value for p in model.metadata_props} | {EXECUTES: executes})
        onnx.save(model, out)
        return Built(format="onnx", notes={"executes": executes, "provider": self.provider})

    @contextmanager
    def open(self, engine: Path, cell: Cell) -> Iterator["OrtSession"]:
        session = load(engine, self.provider, cell.target.threads)
        if session.get_providers()[0] != self.provider:
            # Without the provider's libraries ONNX Runtime answers with another provider and, at most, a warning.
            raise WrongDevice(
                f"asked ONNX Runtime for {self.provider}, got {session.get_providers()[0]}", "install that provider's libraries"
            )
        yield OrtSession(session, self.provider, cell)


class OrtSession:
    """A loaded graph. `step` is `run`: what a service calls, and host to host for every provider."""

    def __init__(self, session: "onnxruntime.InferenceSession", provider: str, cell: Cell) -> None:
        nodes = [(part.ep_name, node.op_type) for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()]
        self.operators = [kind for _, kind in nodes]
        self.placement = _placement(session, nodes, provider, cell)
        self._session = session
        self._specs = specs_of(session)
        self._names = [output.name for output in session.get_outputs()]
        self._inputs: dict[str, np.ndarray] = {}
        self._outputs: list[np.ndarray] = []

    def bind(self, inputs: Tensors) -> None:
        self._inputs = checked(inputs, self._specs)

    def step(self) -> None:
        try:
            self._outputs = self._session.run(self._names, self._inputs)
        except Exception as error:
            raise Unsupported(f"ONNX Runtime failed to run the graph: {words_of(error)}") from error

    def read(self) -> dict[str, np.ndarray]:
        return dict(zip(self._names, self._outputs, strict=True))


def load(engine: Path, provider: str, threads: int, optimised: Path | None = None) -> "onnxruntime.InferenceSession":
    """A session with every choice made here and none left to a default; Unsupported in ONNX Runtime's words.

    Args:
        engine: the ONNX file.
        provider: the only execution provider that may run it.
        threads: of one operator; operators run one after the other.
        optimised: where to write the graph as it will be executed.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    if optimised:
        options.optimized_model_filepath = str(optimised)
    # Workers spin while a run lasts, which is the low-latency default, and sleep once it ends: otherwise they would burn the
    # cores of whatever is measured next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if provider != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with in_words_of("ONNX Runtime", "loading the graph"):
        return ort.InferenceSession(str(engine), options, providers=[provider])


def _placement(session: "onnxruntime.InferenceSession", nodes: Sequence[tuple[str, str]], provider: str, cell: Cell) -> Placement:
    """Which provider got which nodes, before kernels are fused, and what the optimised graph computes in."""
    elsewhere = [kind for name, kind in nodes if name != provider]
    return Placement(
        device=cell.target.device,
        providers=tuple(session.get_providers()),
        precision=session.get_modelmeta().custom_metadata_map.get(EXECUTES, "unknown"),
        threads=session.get_session_options().intra_op_num_threads,
        nodes=len(nodes),
        nodes_elsewhere=len(elsewhere),
        elsewhere=tuple(sorted(set(elsewhere))),
    )


def precision_of(kinds: Iterable[str]) -> str:
    """'fp32', or which operators compute in low precision: 'int8: QLinearConv 6 of 31 nodes'."""
    kinds = list(kinds)
    low = Counter(
        kind for kind in kinds if kind in LOW_PRECISION or kind.startswith(("QLinear", "QGemm", "QAttention")) or kind.endswith("Integer")
    )
    if low:
        return f"int8: {', '.join(f'{kind} {count}' for kind, count in sorted(low.items()))} of {len(kinds)} nodes"
    return "fp32, quantized values only passed on" if "QuantizeLinear" in kinds else "fp32"


def specs_of(session: "onnxruntime.InferenceSession") -> tuple[TensorSpec, ...]:
    """Inputs as the loaded graph declares them."""
    return tuple(TensorSpec(name=i.name, dtype=_dtype(i.type), shape=tuple(_dimension(d) for d in i.shape)) for i in session.get_inputs())


def _dtype(kind: str) -> str:
    """'tensor(float)' -> 'float32'."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _dimension(value: Any) -> int | str:
    return value if isinstance(value, int | str) else "?"


BACKEND = OrtBackend("ort", "CPUExecutionProvider")
