"""Is the level flat, and do the samples look sound? Small pure functions over nanoseconds."""

import numpy as np

TOLERANCE = 0.10  # windows whose medians differ by less are one level
SHORT_NS = 10_000  # below ten microseconds the stopwatch's own tenth is more than a hundredth


def flat(samples_ns: np.ndarray) -> bool:
    """Whether the medians of the last three windows lie within 10% of each other. Windows are a quarter of the samples each."""
    window = max(1, samples_ns.size // 4)
    if samples_ns.size < 3 * window or samples_ns.size < 4:
        return False
    levels = np.median(samples_ns[-3 * window :].reshape(3, window), axis=1)
    return bool(levels.max() <= (1 + TOLERANCE) * max(levels.min(), 1))


def drift(samples_ns: np.ndarray) -> float:
    """Relative change of the median from the first to the last third; positive is slower."""
    third = samples_ns.size // 3
    if third < 5:
        return 0.0
    first, last = np.median(samples_ns[:third]), np.median(samples_ns[-third:])
    return float(last / first - 1) if first > 0 else 0.0


def oddities(samples_ns: np.ndarray) -> list[str]:
    """What a reader of these samples must know, one sentence each."""
    found = []
    if count := int((samples_ns < 0).sum()):
        found.append(f"the clock went backwards in {count} of {samples_ns.size} samples: do not trust this host's clock")
    if count := int((samples_ns == 0).sum()):
        found.append(f"{count} of {samples_ns.size} samples took no time at all: the call is too short for this clock")
    median = float(np.median(samples_ns))
    if 0 < median < SHORT_NS:
        found.append(f"the median call took {median / 1e3:.2f} us: the stopwatch's own 0.1 us is part of it")
    change = drift(samples_ns)
    if abs(change) > TOLERANCE:
        found.append(f"unstable: the last third was {abs(change):.0%} {'slower' if change > 0 else 'faster'} than the first")
    return found
