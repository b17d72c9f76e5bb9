"""The console script `keyplan`, which names the package to install where the command line's own packages are missing."""

import sys
from importlib import import_module
from typing import Final

from keyplan.cli.failures import NOT_INSTALLED

__all__ = ["run"]

_PACKAGES: Final = frozenset({"rich", "typer"})


def run() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        # Why: keyplan's core depends on msgspec alone, and pip installs this script with it.
        code: int = import_module("keyplan.cli.main").main(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        print(f"keyplan: the command line needs the package {error.name}: pip install 'keyplan[cli]'", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    sys.exit(code)
