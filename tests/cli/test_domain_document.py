"""What the page on domains says is true: its commands run, or at least exist."""

from pathlib import Path

from outrider.service.domain_metrics import DomainMetrics
from outrider.service.metrics import Metrics
from tests.service.test_documents import HOW_TO, check_command, needs_programs, run_document, shown_commands

DOMAINS = HOW_TO / "domains.md"


@needs_programs
def test_all_that_the_page_on_domains_tells_runs(tmp_path: Path) -> None:
    output = run_document(DOMAINS, tmp_path)
    assert "reason" in output
    assert "operator: they asked us to" in output
    assert "claims ended: 0" in output
    assert "all well" in output
    assert '"block_reason":"they asked us to"' in output


def test_commands_that_are_shown_exist() -> None:
    commands = list(shown_commands(DOMAINS))
    assert commands
    for words in commands:
        if words != ["domain", "claims"]:  # which is a command and a group of them
            check_command(words)


def test_every_metric_of_domains_is_told() -> None:
    metrics = Metrics()
    assert isinstance(metrics._domains, DomainMetrics)
    kept = {f"{each.name}_total" if each.type == "counter" else each.name for each in metrics._registry.collect()}
    told = {line.split("`")[1].partition("{")[0] for line in DOMAINS.read_text().splitlines() if "| `outrider_" in line}
    assert told == {name for name in kept if "domain" in name or "claims" in name}
