"""Draw the state machines of `outrider.model.machines` into `docs/architecture.md`.

python docs/draw.py            rewrites the blocks between `<!-- drawing: name -->` and `<!-- end -->`
python docs/draw.py --check    changes nothing; exits 1 where a block is missing or not current
"""

import re
import sys
from pathlib import Path

from outrider.model.machines import DOMAIN, JOB, TASK

PAGE = Path(__file__).parent / "architecture.md"
DRAWINGS = {machine.name: machine.drawing() for machine in (TASK, DOMAIN, JOB)}
BLOCK = re.compile(r"(<!-- drawing: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def redraw(page: str) -> str:
    """Put the current drawing into every marked block."""
    return BLOCK.sub(lambda block: f"{block[1]}```mermaid\n{DRAWINGS[block[2]]}\n```\n{block[3]}", page)


def problems(page: str) -> list[str]:
    """List what is missing or not current."""
    found = {block[2] for block in BLOCK.finditer(page)}
    missing = [f"{PAGE.name} has no drawing of the {name} machine" for name in DRAWINGS.keys() - found]
    stale = [f"{PAGE.name} is not current: run `python docs/draw.py`"] if redraw(page) != page else []
    return missing + stale


def main(arguments: list[str]) -> int:
    """Redraw, or only check."""
    page = PAGE.read_text(encoding="utf-8")
    if arguments != ["--check"]:
        page = redraw(page)
        PAGE.write_text(page, encoding="utf-8")
    found = problems(page)
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
