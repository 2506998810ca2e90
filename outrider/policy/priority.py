"""Priority: from a number that people give to one of 16 bands."""

from outrider.model.gate import BANDS, DEFAULT_BAND


def band_of(priority: int) -> int:
    """Map a queue's priority to its band; band 0 is served first.

    0, the default, is the middle band; each doubling of a positive priority is one band better, each
    doubling of a negative one a band worse.

    >>> [band_of(priority) for priority in (0, 1, 2, 4, 1000, -1, -1000)]
    [8, 7, 6, 5, 0, 9, 15]
    """
    steps = abs(priority).bit_length()
    return max(0, DEFAULT_BAND - steps) if priority >= 0 else min(BANDS - 1, DEFAULT_BAND + steps)
