"""What a person types for a job, as an order: the options of `outrider crawl` that a job can have."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from outrider.model.errors import InvalidInput, shown

if TYPE_CHECKING:
    from outrider.crawler.plan import CrawlPlan
    from outrider.model.order import JobOrder, OrderLimits

OWN_WORDS: Final = ("seeds", "user_agent")
"""What a plan and an order have both, and not alike."""
NO_LIMIT: Final = "none"
LIMITS: Final = ("max_pages", "max_pages_per_domain", "max_depth")
"""What `none` takes away."""


class Ordered(NamedTuple):
    """An order, and what goes with it."""

    order: "JobOrder"
    crawl: str | None
    """None where none was named."""
    allow_private: bool


def order_of(flags: Mapping[str, object], strategy: str, config: str | None, *, refresh: bool = False) -> Ordered:
    """Put an order together from flags, environment and file."""
    from outrider.cli.opened import one_of
    from outrider.cli.options import DEFAULT, load_plan
    from outrider.model.order import JobOrder, Strategy

    chosen = one_of("--strategy", strategy, [each.value for each in Strategy])
    plan, _, in_force = load_plan(flags, config_path=config)
    named = {each.field for each in in_force if each.source != DEFAULT}
    alike = [field for field in JobOrder.__struct_fields__ if field not in OWN_WORDS and hasattr(plan, field)]
    order = JobOrder(
        seeds=() if refresh and not plan.seeds and plan.seeds_file is None else _seeds(plan),
        refresh=refresh,
        strategy=Strategy(str(chosen)),
        user_agent=plan.user_agent if "user_agent" in named else None,
        **{field: getattr(plan, field) for field in alike},
    )
    return Ordered(order, plan.crawl if "crawl" in named else None, plan.allow_private)


def _seeds(plan: "CrawlPlan") -> tuple[str, ...]:
    """Read all seeds; a job is refused as a whole, so that nobody waits for one of which a seed is missing."""
    from outrider.cli.seeds import read_seeds

    if not plan.seeds and plan.seeds_file is None:
        raise InvalidInput("name at least one seed: outrider jobs submit https://example.org, or --seeds FILE")
    seeds = read_seeds(plan)
    found = tuple(seed.url for seed in seeds)
    if seeds.refusals:
        more = f" ({seeds.refused - 1:,} more are refused)" if seeds.refused > 1 else ""
        raise InvalidInput(f"a seed is refused: {seeds.refusals[0]}{more}")
    if not found:
        raise InvalidInput(f"there is no seed in {plan.seeds_file}")
    return found


def check_public(seeds: Sequence[str]) -> None:
    """Refuse seeds with private addresses, and say what lets them in."""
    from outrider.crawler.private_hosts import private_because

    for seed in seeds:
        if private := private_because(seed):
            raise InvalidInput(f"{seed}: {private}; --allow-private takes it, here and for `outrider supervise`")


def labels_of(texts: Sequence[str]) -> dict[str, str]:
    """Read labels written as NAME=VALUE.

    >>> labels_of(["team=search", "note=a=b"])
    {'team': 'search', 'note': 'a=b'}
    """
    labels: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InvalidInput(f"--label must be NAME=VALUE, not {shown(text)}")
        if name in labels:
            raise InvalidInput(f"--label {name} is there twice")
        labels[name] = value
    return labels


def label_of(text: str | None) -> tuple[str, str] | None:
    """Read one label to look for, where there is one."""
    return None if text is None else next(iter(labels_of([text]).items()))


def changed_limits(**texts: str | None) -> "OrderLimits | None":
    """Read what is to be changed of a job's limits; None where nothing is."""
    from outrider.cli.options import TABLES
    from outrider.cli.settings import read_value
    from outrider.model.order import OrderLimits

    changed: dict[str, Any] = {}
    for field, text in texts.items():
        if text is None:
            continue
        if field in LIMITS and text.strip().lower() == NO_LIMIT:
            changed[field] = None
            continue
        option = TABLES["crawl"][field]
        changed[field] = read_value(f"--{field.replace('_', '-')}", option.kind, text, as_text=True)
    return OrderLimits(**changed) if changed else None
