"""What the commands of `keyplan hepnos` share: the store that is named, and the container in it."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from keyplan.apps.hepnos.datasets import DataSet
from keyplan.apps.hepnos.errors import MissingError
from keyplan.apps.hepnos.numbered import Numbered, Run, SubRun
from keyplan.apps.hepnos.products import Container
from keyplan.apps.hepnos.remote_calls import is_server_url
from keyplan.apps.hepnos.store import DataStore, open_hepnos
from keyplan.cli import store_url_of_option
from keyplan.errors import InvalidInputError

__all__ = ["container_named", "dataset_named", "opened"]


_TOKEN_VARIABLE: Final = "KEYPLAN_TOKEN"  # noqa: S105  # Why: the name of a variable.


def opened(
    url: str | None, config: Path | None, *, create: bool = False, databases: dict[str, int] | None = None
) -> DataStore:
    """Open the store of `--store`, KEYPLAN_STORE or the settings, for a `with` block.

    A server, by its URL, is asked with the token in KEYPLAN_TOKEN.
    """
    named = store_url_of_option(url, config)
    token = os.environ.get(_TOKEN_VARIABLE) if is_server_url(named) else None
    return open_hepnos(named, create=create, databases=databases, token=token)


def dataset_named(data: DataStore, path: str) -> DataSet:
    """Return a data set that exists. Raises MissingError."""
    return data.root if not path.strip("/") else data[path]


def container_named(data: DataStore, path: str, numbers: Sequence[int] | None, *, is_checked: bool = True) -> Container:
    """Return a data set by its full name, or the run, subrun or event of numbers in it. Raises MissingError."""
    dataset = dataset_named(data, path)
    if not numbers:
        return dataset
    if len(numbers) > 3:
        raise InvalidInputError(source="numbers", problem="a run, a subrun and an event are three numbers at most")
    found: Numbered = dataset.runs.handle(numbers[0])
    for number in numbers[1:]:
        found = _child(found, number)
    if is_checked and not found.exists():
        raise MissingError(table=found.kind.value, key=found.path)
    return found


def _child(parent: Numbered, number: int) -> Numbered:
    children = parent.subruns if isinstance(parent, Run) else parent.events if isinstance(parent, SubRun) else None
    assert children is not None
    return children.handle(number)
