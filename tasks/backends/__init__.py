"""Backends by name; a name costs nothing until it is used."""

from importlib import import_module

from tasks.backends.base import Backend
from tasks.errors import BadRequest

WHERE = {
    "torch-eager": "tasks.backends.torch_eager",
    "ort": "tasks.backends.ort",
    "openvino": "tasks.backends.openvino_rt",
    "inductor": "tasks.backends.inductor",
    "simulated": "tasks.backends.simulated",
}


def backend(name: str) -> Backend:
    """The backend of that name; BadRequest with the known names otherwise."""
    if name not in WHERE:
        raise BadRequest(f"no backend {name!r}", f"known backends: {', '.join(WHERE)}")
    return import_module(WHERE[name]).BACKEND
