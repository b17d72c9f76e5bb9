"""The command `keyplan completion`."""

from enum import Enum
from typing import Annotated, Final

import typer
from typer.completion import get_completion_inspect_parameters, shell_complete

__all__ = ["COMPLETION_VARIABLE", "Shell", "register_shells", "run"]

COMPLETION_VARIABLE: Final = "_KEYPLAN_COMPLETE"
"""What a shell sets when it asks for completions."""


class Shell(Enum):
    """The shells that can be served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register_shells() -> None:
    """Make typer know the shells."""
    # Why: this is typer's only public function that does so; its answer, two options of a root, is of no use here.
    get_completion_inspect_parameters()


def run(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
) -> None:
    """Print the script that completes keyplan's commands, options and a layout's items in a shell.

    For bash, this line in ~/.bashrc: eval "$(keyplan completion bash)". For fish, in ~/.config/fish/config.fish: keyplan
    completion fish | source. For zsh, in ~/.zshrc after compinit: eval "$(keyplan completion zsh)".
    """
    register_shells()
    shell_complete(context.find_root().command, {}, "keyplan", COMPLETION_VARIABLE, f"source_{shell.value}")
