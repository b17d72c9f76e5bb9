"""keyplan completion"""

from enum import Enum
from typing import Annotated

import typer
from click.shell_completion import get_completion_class

from keyplan.cli.main import root
from keyplan.cli.output import print_text

__all__ = ["run"]


class Shell(Enum):
    """The shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def run(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell, for its start-up file: `eval "$(keyplan completion bash)"`."""
    kind = get_completion_class(shell.value)
    assert kind is not None  # Invariant: Shell lists those that click has.
    print_text(kind(root, {}, "keyplan", "_KEYPLAN_COMPLETE").source())
