"""A folder that may not be written, with files that may: writers cannot take turns in it, and are told so."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from keyplan.engine import open_engine
from keyplan.engine.lmdb import turn
from keyplan.errors import EngineOpenError


def test_who_cannot_make_the_file_of_the_turn_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_engine(f"lmdb:{tmp_path}"):
        pass
    (tmp_path / "turn.lock").unlink()

    def denied(path: Path, *_: object, **options: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    # Why not by the folder's mode: the superuser may write everywhere.
    access = os.access
    monkeypatch.setattr(turn, "open_file", denied)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path and access(path, mode))
    with pytest.raises(
        EngineOpenError, match=r"turn\.lock in it: let this user write there, or open it with \?readonly"
    ):
        open_engine(f"lmdb:{tmp_path}")
    assert not (tmp_path / "turn.lock").exists()
    with open_engine(f"lmdb:{tmp_path}?readonly=true"):
        pass
