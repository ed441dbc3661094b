"""Small pure functions between raw samples and a decision. Nothing here reads a file or knows a model."""

from tasks.stats.paired import (
    Difference,
    NonInferiority,
    needed_pairs,
    non_inferior,
    paired_difference,
    pairs_to_settle,
    value,
)
from tasks.stats.percentiles import Estimate, estimate, nearest_rank, samples_to_decide, samples_to_show, upper_estimate
from tasks.stats.rates import Rate, geometric_mean, ratio, throughput
from tasks.stats.tango import tango_interval

__all__ = [
    "Difference",
    "Estimate",
    "NonInferiority",
    "Rate",
    "estimate",
    "geometric_mean",
    "nearest_rank",
    "needed_pairs",
    "non_inferior",
    "paired_difference",
    "pairs_to_settle",
    "ratio",
    "samples_to_decide",
    "samples_to_show",
    "tango_interval",
    "throughput",
    "upper_estimate",
    "value",
]
