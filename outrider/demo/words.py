"""The words of the site's paths, and prose made of them."""

import random

WORDS = (
    "almanac", "botany", "craft", "drama", "essays", "fables", "geology", "harbours", "islands", "journeys",
    "kitchens", "letters", "maps", "nature", "orchards", "poems", "quarries", "rivers", "stories", "towns",
)  # fmt: skip


def prose(seed: int, length: int) -> str:
    """At least so many characters of harmless words, the same for the same seed."""
    chance = random.Random(seed)
    sentences: list[str] = []
    total = 0
    while total < length:
        sentence = " ".join(chance.choices(WORDS, k=chance.randrange(5, 15))).capitalize() + ". "
        sentences.append(sentence)
        total += len(sentence)
    return "".join(sentences)
