"""Docstrings: their examples hold, and those of the tests name the invariants that they guard."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import outrider.model
import outrider.policy
import outrider.store

INVARIANTS = {
    1: "Identity", 2: "Exclusivity", 3: "Attempts", 4: "Depth", 5: "Nothing lost", 6: "Counts",
    7: "Politeness", 8: "Claims", 9: "Jobs", 10: "The frontier stays a frontier",
}  # fmt: skip
ROOMS = (outrider.model, outrider.policy, outrider.store)
FINDER = doctest.DocTestFinder(exclude_empty=True)


def modules() -> list[ModuleType]:
    """All modules of the rooms but the migrations, which only Alembic can load."""
    names = [
        each.name
        for room in ROOMS
        for each in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
        if ".migrations." not in each.name
    ]
    return [importlib.import_module(name) for name in names]


WITH_EXAMPLES = [module for module in modules() if any(each.examples for each in FINDER.find(module))]


def test_there_are_examples() -> None:
    assert {"outrider.model.machines", "outrider.model.url", "outrider.policy.priority"} <= {
        module.__name__ for module in WITH_EXAMPLES
    }


@pytest.mark.parametrize("module", WITH_EXAMPLES, ids=lambda module: module.__name__)
def test_the_examples_hold(module: ModuleType) -> None:
    outcome = doctest.testmod(module, optionflags=doctest.REPORT_NDIFF)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_every_invariant_is_guarded_by_name() -> None:
    cited: set[int] = set()
    for path in Path(__file__).parent.rglob("*.py"):
        for number, words in re.findall(r"\bInvariant (\d+), ([^\n]+)", path.read_text(encoding="utf-8")):
            assert words.startswith(INVARIANTS[int(number)]), f"{path.name}: Invariant {number}, {words}"
            cited.add(int(number))
    assert cited == INVARIANTS.keys()
