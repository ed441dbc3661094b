"""Tango's score interval for the difference of two paired proportions.

T. Tango, "Equivalence test and confidence interval for the difference in proportions for the paired-sample design", Statistics in
Medicine 17 (1998) 891-908. Recommended for paired designs by Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014)
2850-2875. It keeps its coverage with few discordant pairs, and has a width with none: +- z^2 / (n + z^2).
"""

from math import sqrt


def tango_interval(better: int, worse: int, count: int, confidence: float) -> tuple[float, float]:
    """Two-sided interval of (better - worse) / count.

    Args:
        better: pairs that only the candidate gets right.
        worse: pairs that only the baseline gets right.
        count: all pairs.
        confidence: of the two-sided interval.
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    z, observed, edge = float(norm.ppf((1 + confidence) / 2)), (better - worse) / count, 1 - 1e-12
    low = -1.0 if worse == count else brentq(lambda d: _score(better, worse, count, d) - z, -edge, observed, xtol=1e-12)
    high = 1.0 if better == count else brentq(lambda d: _score(better, worse, count, d) + z, observed, edge, xtol=1e-12)
    return float(low), float(high)


def _score(better: int, worse: int, count: int, difference: float) -> float:
    """The score statistic under that true difference; the nuisance probability by maximum likelihood (Tango 1998, equations 5, 6)."""
    a = 2 * count
    b = -better - worse + (2 * count - better + worse) * difference
    c = -worse * difference * (1 - difference)
    nuisance = max((sqrt(max(b * b - 4 * a * c, 0)) - b) / (2 * a), 0)
    variance = count * (2 * nuisance + difference * (1 - difference))
    shift = better - worse - count * difference
    return shift / sqrt(variance) if variance > 0 else (0.0 if abs(shift) < 1e-9 else shift * 1e12)
