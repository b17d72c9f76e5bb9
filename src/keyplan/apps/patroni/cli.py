"""The commands of `keyplan patroni`."""

import typer

from keyplan.apps.patroni.cli_cells import cell, router
from keyplan.apps.patroni.cli_up import up

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def _group() -> None:
    """PostgreSQL clusters as a service: a broker's cells and routers, and what they have in common, the store."""


app.command()(up)
app.command()(cell)
app.command()(router)
