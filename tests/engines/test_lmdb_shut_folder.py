"""Folders that a store is not opened in: one that may not be written, and one that holds files of others."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from keyplan.engine import Commit, Put, open_engine
from keyplan.engine.lmdb import files, turn
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


def test_a_store_that_another_process_makes_meanwhile_is_no_folder_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "s.kv"
    look = files._mode_and_owner
    made: list[object] = []

    def then_made(*arguments: Any) -> Any:
        found = look(*arguments)
        if not made:
            made.append(found)
            program = f"from keyplan.engine import open_engine; open_engine('lmdb:{path}').close()"
            subprocess.run([sys.executable, "-c", program], check=True)
        return found

    monkeypatch.setattr(files, "_mode_and_owner", then_made)
    with open_engine(f"lmdb:{path}") as engine:
        assert engine.commit(Commit((), (Put(b"a", b"1"),))) == 1
    assert len(made) == 1
