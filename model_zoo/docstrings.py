"""Question and answer pairs out of installed docstrings: a summary line, and the text it summarises with the name taken out."""

import inspect
import re
import warnings
from collections.abc import Iterator
from importlib import import_module

DISTRIBUTIONS = ("numpy", "scipy", "scikit-learn")
MODULES = {
    "numpy": ("", "fft", "linalg", "random"),
    "scipy": (
        *("cluster.hierarchy", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal"),
        *("sparse", "sparse.csgraph", "sparse.linalg", "spatial", "special", "stats"),
    ),
    "sklearn": (
        *("cluster", "covariance", "datasets", "decomposition", "ensemble", "feature_extraction.text", "feature_selection"),
        *("gaussian_process", "impute", "inspection", "linear_model", "manifold", "metrics", "mixture", "model_selection"),
        *("naive_bayes", "neighbors", "preprocessing", "svm", "tree"),
    ),
}
SKIPPED = re.compile(r"Read more|See Also|\.\. version|References|>>>")


def pairs() -> list[tuple[str, str]]:
    """(summary, body) of every public callable that has both, each summary and body once, sorted; needs numpy, scipy and scikit-learn."""
    found: dict[str, str] = {}
    bodies: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, text in _docstrings():
            pair = _pair(name, text)
            if pair and pair[0] not in found and pair[1] not in bodies:
                found[pair[0]] = pair[1]
                bodies.add(pair[1])
    return sorted(found.items())


def _docstrings() -> Iterator[tuple[str, str]]:
    seen = set()
    for module in (import_module(f"{package}.{part}".rstrip(".")) for package, parts in MODULES.items() for part in parts):
        for name in sorted(getattr(module, "__all__", None) or dir(module)):
            try:
                member = getattr(module, name, None)
            except ImportError:  # scikit-learn's experimental estimators
                continue
            text = inspect.getdoc(member) if callable(member) and not name.startswith("_") else None
            if text and id(member) not in seen:
                seen.add(id(member))
                yield name, text


def _pair(name: str, text: str) -> tuple[str, str] | None:
    paragraphs = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text)]
    if paragraphs and re.match(r"[\w.]+\(.*\)", paragraphs[0]):  # a signature
        paragraphs = paragraphs[1:]
    if len(paragraphs) < 3 or paragraphs[0].startswith("`"):
        return None
    body = " ".join(part for part in paragraphs[1:] if not SKIPPED.match(part))
    body = re.sub(rf"\b{re.escape(name)}\b", "it", body)
    body = " ".join(re.sub(r"-{3,}|[:`*]{1,2}", "", body).split()[:110])
    return (paragraphs[0], body) if 20 <= len(paragraphs[0]) <= 160 and len(body) > 150 else None
