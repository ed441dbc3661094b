"""MovieLens 100k as recbole's wheel carries it, read without recbole."""

import csv
from pathlib import Path

import numpy as np

Table = dict[str, list[str]]


def read(folder: Path) -> dict[str, np.ndarray]:
    """What users watched and what is known of users and films.

    Returns:
        user, film: int64 (100000,), by user and then by time.
        profile: int64 (users, 3): decade of age, gender, job.
        dense: float32 (films, 20): genres and the scaled year.
    """
    watched, users, films = (_table(folder / f"ml-100k.{part}") for part in ("inter", "user", "item"))
    user_row = {name: row for row, name in enumerate(users["user_id"])}
    film_row = {name: row for row, name in enumerate(films["item_id"])}
    user = np.array([user_row[name] for name in watched["user_id"]], np.int64)
    film = np.array([film_row[name] for name in watched["item_id"]], np.int64)
    order = np.lexsort((film, np.array(watched["timestamp"], np.float64), user))
    return {"user": user[order], "film": film[order], "profile": _profiles(users), "dense": _features(films)}


def _table(path: Path) -> Table:
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return {name.split(":")[0]: list(column) for name, column in zip(head, zip(*rows, strict=True), strict=True)}


def _profiles(users: Table) -> np.ndarray:
    jobs = sorted(set(users["occupation"]))
    rows = zip(users["age"], users["gender"], users["occupation"], strict=True)
    return np.array([(min(int(age) // 10, 7), gender == "M", jobs.index(job)) for age, gender, job in rows], np.int64)


def _features(films: Table) -> np.ndarray:
    genres = sorted({genre for cell in films["class"] for genre in cell.split()})
    rows = [[genre in cell.split() for genre in genres] for cell in films["class"]]
    years = [float(year) if year.strip().isdigit() else 1990.0 for year in films["release_year"]]
    return np.column_stack([np.array(rows, np.float32), (np.array(years, np.float32) - 1980) / 20]).astype(np.float32)
