"""The keys of a bucket, from a file that only its owner may read, or from a command: they never lie in the store."""

import shlex
import subprocess
from pathlib import Path
from typing import Final

from keyplan.apps.patroni.backups.archive import AccessKeys
from keyplan.codec import Secret
from keyplan.errors import InvalidInputError
from keyplan.files import read_private

__all__ = ["read_access_keys"]

_COMMAND: Final = "command:"
_BYTES_MAX: Final = 4_096
_SECONDS_MAX: Final = 20.0
"""Why so few: the cell's other nodes wait."""


def read_access_keys(source: str) -> AccessKeys:
    """Return the two lines of a file, or of what `command:WORDS` prints. Raises InvalidInputError."""
    is_command = source.startswith(_COMMAND)
    lines = (_printed_by(source.removeprefix(_COMMAND)) if is_command else _read(Path(source))).split()
    if len(lines) != 2:
        raise InvalidInputError(source=source, problem="it gives no access key and secret: two lines, without spaces")
    return AccessKeys(*map(Secret, lines))


def _read(path: Path) -> str:
    return read_private(
        path,
        bytes_max=_BYTES_MAX,
        missing="write the access key and its secret into it, a line each",
        exposed="chmod 600",
        too_long="it is to have two lines",
    )


def _printed_by(words: str) -> str:
    try:
        printed = subprocess.run(  # noqa: S603  # Why: the operator's own words, from the policy.
            shlex.split(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_SECONDS_MAX, check=False
        )
        if printed.returncode:
            raise InvalidInputError(source=_COMMAND, problem=f"it ended with {printed.returncode}, and not with keys")
        return printed.stdout[:_BYTES_MAX].decode()
    except subprocess.TimeoutExpired:
        problem = f"it printed no keys within {_SECONDS_MAX:g} seconds"
        raise InvalidInputError(source=_COMMAND, problem=problem) from None
    except (OSError, IndexError, ValueError) as error:
        raise InvalidInputError(source=_COMMAND, problem=f"it cannot be run: {type(error).__name__}") from error
