"""Keys of secrets come from a file that only its owner may read, or from a command; printing them shows no key."""

import base64
import pickle
import stat
import sys
import traceback
from pathlib import Path

import pytest

from keyplan import SecretKeys
from keyplan.errors import InvalidInputError, SecretKeyError
from keyplan.secret_keys import KEY_FILE_BYTES_MAX, add_secret_key

KEY = bytes(range(32))
TEXT = f'current = "k1"\n\n[keys]\nk1 = "{base64.b64encode(KEY).decode()}"\n'


def key_file(folder: Path, text: str = TEXT, mode: int = 0o600) -> Path:
    path = folder / "vault.keys"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_key_file_is_made_private_and_grows_with_the_newest_key_as_the_current_one(tmp_path: Path) -> None:
    path = tmp_path / "vault.keys"
    add_secret_key(path, "k1", KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == TEXT
    first = SecretKeys.read(path)
    sealed = first.encrypt("k1", b"plain", b"context")
    add_secret_key(path, "k2", KEY[::-1])
    both = SecretKeys.read(path)
    assert (both.current, both.ids) == ("k2", ("k2", "k1"))
    assert both.decrypt("k1", sealed, b"context") == b"plain"
    with pytest.raises(InvalidInputError, match="there is a key 'k1' already"):
        add_secret_key(path, "k1", KEY)


def test_keys_that_were_added_to_the_file_are_found_when_they_are_needed(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    early = SecretKeys.read(path)
    add_secret_key(path, "k2", KEY[::-1])
    assert early.current == "k1"
    sealed = SecretKeys.read(path).encrypt("k2", b"plain", b"context")
    assert early.decrypt("k2", sealed, b"context") == b"plain"
    assert early.current == "k2"
    path.unlink()
    with pytest.raises(SecretKeyError, match="no key of this id is known"):
        early.decrypt("k3", sealed, b"context")
    assert early.decrypt("k1", early.encrypt("k1", b"plain", b""), b"") == b"plain"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o660, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InvalidInputError, match="others than its owner may read or write it: chmod 600"):
        SecretKeys.read(key_file(tmp_path, mode=mode))


GOOD = base64.b64encode(KEY).decode()
WRONG = {
    "no file of keys": ("current = ", "no key file"),
    "no keys": ('current = "k1"\n', "it needs current"),
    "no current": (f'[keys]\nk1 = "{GOOD}"\n', "it needs current"),
    "more": (TEXT.replace("[keys]", 'old = "k0"\n[keys]'), "it needs current"),
    "current is not there": (TEXT.replace('current = "k1"', 'current = "k2"'), "'k2' is not among the keys"),
    "a short key": (f'current = "k1"\n[keys]\nk1 = "{GOOD[:24]}"\n', "has 18 bytes: it needs 32"),
    "no base64": (f'current = "k1"\n[keys]\nk1 = "{GOOD[:-2]}?="\n', "no base64"),
    "a number": ('current = "k1"\n[keys]\nk1 = 17\n', "no base64"),
    "a wrong id": (f'current = "K:1"\n[keys]\n"K:1" = "{GOOD}"\n', "is no id of a key"),
    "too long": (TEXT + "#" * KEY_FILE_BYTES_MAX, "has more than"),
    "no text": (TEXT + "\udcff", "not text in UTF-8"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_key_file_is_refused_without_a_key_in_the_message(tmp_path: Path, case: str) -> None:
    text, problem = WRONG[case]
    path = tmp_path / "vault.keys"
    path.write_bytes(text.encode(errors="surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(InvalidInputError, match=problem) as refused:
        SecretKeys.read(path)
    shown = "".join(traceback.format_exception(refused.value))
    assert GOOD[:16] not in shown
    assert str(path) in str(refused.value)


def test_what_is_not_there_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="keyplan secrets new"):
        SecretKeys.read(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="no file"):
        SecretKeys.read(tmp_path)


def test_a_command_prints_keys(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    printed = SecretKeys.printed_by([sys.executable, "-c", f"print(open({str(path)!r}).read())"])
    assert printed.ids == ("k1",)
    assert printed.decrypt("k1", SecretKeys.read(path).encrypt("k1", b"x", b"c"), b"c") == b"x"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], "it ended with 3"),
        ([sys.executable, "-c", "print('hello')"], "no key file"),
        ([sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes([255]))"], "no text in UTF-8"),
        (["/nowhere/to/be/found"], "cannot be started"),
        ([], "cannot be started"),
    ],
)
def test_a_command_that_prints_no_keys_is_refused(words: list[str], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        SecretKeys.printed_by(words)


def test_keys_show_their_ids_alone_and_are_not_pickled() -> None:
    keys = SecretKeys({"k1": KEY}, "k1")
    assert repr(keys) == str(keys) == "SecretKeys(current='k1', ids=['k1'])"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(keys)
