"""keyplan.files: modes whatever the umask is, and files that are there whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keyplan.errors import InvalidInputError
from keyplan.files import make_folder, new_file, open_file, write_over, write_whole


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177], ids=oct)
def test_modes_are_those_asked_for_whatever_the_umask_is(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        make_folder(tmp_path / "a" / "b")
        make_folder(tmp_path / "shared", mode=0o750)
        write_whole(tmp_path / "a" / "secret", b"x")
        write_whole(tmp_path / "shared" / "told", b"x", mode=0o640)
    assert [mode_of(tmp_path / name) for name in ("a", "a/b", "shared")] == [0o700, 0o700, 0o750]
    assert [mode_of(tmp_path / name) for name in ("a/secret", "shared/told")] == [0o600, 0o640]


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    make_folder(tmp_path / "open" / "inner")
    assert (mode_of(tmp_path / "open"), mode_of(tmp_path / "open" / "inner")) == (0o755, 0o700)


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    for path in (tmp_path / "plain", tmp_path / "plain" / "inner"):
        with pytest.raises(InvalidInputError, match="plain"):
            make_folder(path)


def test_a_file_is_replaced_whole_and_its_mode_with_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_whole(path, "né\n", owner=(os.getuid(), os.getgid()))
    assert path.read_bytes() == b"n\xc3\xa9\n"
    assert mode_of(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_what_is_not_there_yet_makes_it_and_one_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "second").symlink_to(tmp_path / "there" / "file")
    (tmp_path / "first").symlink_to("second")
    os.close(open_file(tmp_path / "first", os.O_WRONLY | os.O_CREAT, mode=0o640))
    assert mode_of(tmp_path / "there" / "file") == 0o640
    assert (tmp_path / "first").is_symlink()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="symbolic links"):
        open_file(tmp_path / "round", os.O_WRONLY | os.O_CREAT)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "file")
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "nowhere", os.O_WRONLY | os.O_CREAT)


def test_a_link_is_replaced_and_what_it_leads_to_is_not(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "link").read_text() == "new"


def test_what_is_there_is_kept_when_nothing_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write_whole(path, b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_whole(path, b"second", replace=False)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    write_whole(path, b"first")

    def no_room(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_whole(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_over_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    write_over(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert mode_of(file) == 0o640


@pytest.mark.parametrize("mask", [0o022, 0o077], ids=oct)
def test_a_file_for_its_user_has_the_mode_that_the_umask_allows(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        write_over(tmp_path / "file", "text")
    assert mode_of(tmp_path / "file") == 0o666 & ~mask


def test_a_full_disk_cuts_no_file_that_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("old")
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(InvalidInputError, match="No space left"):
        write_over(tmp_path / "file", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_what_is_no_file_is_written_into(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_over(Path(f"/dev/fd/{writing}"), "text")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "text"


def failing(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_missing_folder_is_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="missing/file"):
        write_whole(tmp_path / "missing" / "file", b"x")


def test_a_new_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new"
    with new_file(path) as file:
        file.write(b"first half")
        assert not path.exists()
        file.write(b", second half")
    assert path.read_bytes() == b"first half, second half"
    assert mode_of(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with new_file(tmp_path / "new") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_takes_nobodys_place(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_bytes(b"first")
    with pytest.raises(InvalidInputError, match="there is a file of this name"), new_file(path):
        pass
    other = tmp_path / "came meanwhile"

    def be_overtaken() -> None:
        with new_file(other) as file:
            file.write(b"second")
            other.write_bytes(b"first")

    with pytest.raises(InvalidInputError, match="came meanwhile"):
        be_overtaken()
    assert (path.read_bytes(), other.read_bytes()) == (b"first", b"first")
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_what_a_killed_writer_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".new.0123456789ab.part").write_bytes(b"half")
    (tmp_path / "new.part").write_bytes(b"half")
    with new_file(tmp_path / "new") as file:
        file.write(b"whole")
    assert (tmp_path / "new").read_bytes() == b"whole"
