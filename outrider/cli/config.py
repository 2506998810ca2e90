"""`outrider config`: what is in force, and where each value comes from."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.cli.options import Resolved


def config(
    config_file: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Read this file in place of outrider.toml in this folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Print every setting in force and where it comes from; passwords are hidden.

    A flag of the command decides first, then an environment variable, then the file, then the default.
    """
    from outrider.cli.options import load_plan

    _, _, in_force = load_plan({}, config_path=config_file)
    if as_json:
        _print_json(in_force)
    else:
        _print_table(in_force)


def _print_json(in_force: "tuple[Resolved, ...]") -> None:
    import json

    tables: dict[str, dict[str, object]] = {}
    for each in in_force:
        tables.setdefault(each.table, {})[each.key] = {"value": each.told, "source": each.source}
    typer.echo(json.dumps(tables, indent=2))


def _print_table(in_force: "tuple[Resolved, ...]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        _print_columns([(f"[{each.table}] {each.key}", each.shown, each.source) for each in in_force])
        return
    table = Table("setting", "value", "from", box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    heading = ""
    for each in in_force:
        if each.table != heading:
            heading = each.table
            table.add_row(Text(f"[{heading}]", style="bold"))
        style = "dim" if each.source == "default" else ""
        table.add_row(Text(each.key), Text(each.shown, overflow="fold"), Text(each.source), style=style)
    console.print(table)


def _print_columns(rows: list[tuple[str, str, str]]) -> None:
    """Print for programs and files, at full length: Rich would fold what is wider than 80 columns."""
    named, valued = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, source in rows:
        typer.echo(f"{name:{named}}  {' '.join(value.splitlines()):{valued}}  {source}")
