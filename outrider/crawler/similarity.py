"""Similarity: 64 bits of a page's main text that differ little where the text does.

The bits are those of a min-wise hash: the shingles of the text, three words each, are hashed into 64 buckets, and each
bucket gives one bit of its least hash. Of two texts that have a share J of all their shingles in common, (1 - J) / 2
of the bits differ: none for the same text, half of them for two that have nothing in common. Unlike the sums of a
simhash, that takes no more than a comparison per shingle.
"""

from typing import Final

from xxhash import xxh3_64_intdigest

from outrider.crawler.main_text import main_words

SAME_WITHIN: Final = 3
"""Texts with at most so many differing bits say the same: nine tenths of their shingles or more are shared."""
NEAR_WITHIN: Final = 12
"""Texts with at most so many share a good part of their shingles; unrelated ones differ in 32 bits, give or take 4."""
SHINGLE_WORDS: Final = 3

_BITS: Final = 64
_BUCKET_SHIFT: Final = 58
_EMPTY: Final = 1 << 64
_MASK: Final = _EMPTY - 1


def similarity_hash(html: str) -> int | None:
    """Hash the main text of a page; None where it has too few words to say anything.

    The number is signed, so that it fits a column of 64 bits.
    """
    return hash_of_words(main_words(html))


def hash_of_words(words: list[bytes]) -> int | None:
    """Hash a text of words; None where there is not a single shingle."""
    if len(words) < SHINGLE_WORDS:
        return None
    shingles = map(b" ".join, zip(words, words[1:], words[2:], strict=False))
    least = [_EMPTY] * _BITS
    for hashed in map(xxh3_64_intdigest, shingles):
        bucket = hashed >> _BUCKET_SHIFT
        if hashed < least[bucket]:
            least[bucket] = hashed
    bits = 0
    # An empty bucket takes the bit of the next one that is not, with the turn that tells them apart.
    borrowed = next(hashed for hashed in least if hashed != _EMPTY)
    for bucket in range(_BITS - 1, -1, -1):
        if least[bucket] != _EMPTY:
            borrowed = least[bucket]
        bits |= (borrowed >> (bucket % 48) & 1) << bucket
    return bits - _EMPTY if bits >> 63 else bits


def distance(one: int, other: int) -> int:
    """Count the bits in which two hashes differ.

    >>> distance(-1, -2), distance(5, 5)
    (1, 0)
    """
    return ((one ^ other) & _MASK).bit_count()


def says_the_same(one: int | None, other: int | None) -> bool:
    """Tell whether two pages have the same main text; without a hash on both sides nobody can."""
    return one is not None and other is not None and distance(one, other) <= SAME_WITHIN
