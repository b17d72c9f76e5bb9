"""The file that a migration carries aside: written once, whole, and for its owner; read with care."""

from pathlib import Path

import pytest

from keyplan.apps.cloudchamber import (
    LayoutSide,
    MigrationOptions,
    MigrationSidecar,
    planned_migration,
    read_sidecar,
    write_sidecar,
)
from keyplan.errors import InvalidInputError

GO = LayoutSide.GO


def test_an_aside_file_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "aside.json"
    assert write_sidecar(file, MigrationSidecar(GO, users={"a": "A"})) is True
    assert write_sidecar(file, MigrationSidecar(GO, users={"a": "A"})) is False
    with pytest.raises(InvalidInputError, match="holds something else"):
        write_sidecar(file, MigrationSidecar(GO, users={"b": "B"}))
    assert read_sidecar(file) == MigrationSidecar(GO, users={"a": "A"})
    assert [found.name for found in tmp_path.iterdir()] == ["aside.json"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "x", "version": 1}', "\xff"])
def test_what_is_no_aside_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="latin-1")
    with pytest.raises(InvalidInputError):
        read_sidecar(tmp_path / "x.json")


def test_an_aside_of_the_same_direction_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="on the way from go, not to it"):
        planned_migration({}, GO, MigrationOptions(), MigrationSidecar(GO))


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It can hold hashes of passwords."""
    write_sidecar(tmp_path / "aside.json", MigrationSidecar(GO))
    assert (tmp_path / "aside.json").stat().st_mode & 0o777 == 0o600


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "none" / "aside.json", tmp_path / "folder"):
        with pytest.raises(InvalidInputError):
            write_sidecar(place, MigrationSidecar(GO))
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]
