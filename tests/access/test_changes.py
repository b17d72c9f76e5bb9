"""What an audit log is told of a changed access file: who came, went or changed, and in what; before it counts."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from keyplan.access import AccessFile, PrincipalChange, changes_between, read_policy
from keyplan.errors import InvalidInputError

SUM = sha256(b"a token of the test").hexdigest()
OTHER = sha256(b"another token of it").hexdigest()

BEFORE = f"""\
[principals.ada]
tokens = ["sha256:{SUM}"]
read = ["everything", "prefix:/a/"]
users = [7]
"""


def changes(after: str, before: str = BEFORE) -> list[tuple[str, str, str]]:
    found = changes_between(read_policy(before, source="x"), read_policy(after, source="x"))
    return [(one.name, one.act, one.what) for one in found]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (BEFORE, []),
        (f"# a comment\n\n{BEFORE}".replace('"everything", "prefix:/a/"', '"prefix:/a/", "everything"'), []),
        ("", [("ada", "remove", f"tokens -{SUM[:8]}, users -7, read -everything -prefix:/a/")]),
        (f"{BEFORE}[principals.bob]\n", [("bob", "add", "")]),
        (
            f'{BEFORE}[principals.bob]\nadminister = ["everything"]\nlabels = ["role:r"]\n',
            [("bob", "add", "labels +role:r, administer +everything")],
        ),
        (
            BEFORE.replace(f"sha256:{SUM}", f'sha256:{OTHER}", "sha256:{SUM} until 2026-12-01T00:00:00Z'),
            [("ada", "change", f"tokens +{SUM[:8]} until 2026-12-01T00:00:00+00:00 +{OTHER[:8]} -{SUM[:8]}")]
            if SUM[:8] < OTHER[:8]
            else [("ada", "change", f"tokens +{OTHER[:8]} +{SUM[:8]} until 2026-12-01T00:00:00+00:00 -{SUM[:8]}")],
        ),
        (
            BEFORE.replace("read", "write"),
            [("ada", "change", "read -everything -prefix:/a/, write +everything +prefix:/a/")],
        ),
        (
            BEFORE.replace("users = [7]", 'users = ["ada"]\ncertificates = ["DNS:ada.example"]'),
            [("ada", "change", "certificates +DNS:ada.example, users +ada -7")],
        ),
        (
            BEFORE.replace("principals.ada", "principals.eve"),
            [
                ("ada", "remove", f"tokens -{SUM[:8]}, users -7, read -everything -prefix:/a/"),
                ("eve", "add", f"tokens +{SUM[:8]}, users +7, read +everything +prefix:/a/"),
            ],
        ),
    ],
)
def test_what_has_changed_is_told_by_principals(after: str, told: list[tuple[str, str, str]]) -> None:
    assert changes(after) == told


def test_a_follower_is_told_before_a_change_counts_and_of_sound_states_alone(tmp_path: Path) -> None:
    now, path = [0.0], tmp_path / "access.toml"
    told: list[tuple[Sequence[PrincipalChange], bool]] = []
    errors: list[InvalidInputError | None] = []

    def write(text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)
        now[0] += 2

    write(BEFORE)
    file = AccessFile(path, monotonic=lambda: now[0], on_change=errors.append)
    known = file.policy

    def follow(changes: Sequence[PrincipalChange]) -> None:
        now_known = vars(file)["_policy"]
        told.append((changes, now_known is known))

    file.tell(follow)
    write(f"{BEFORE}[principals.bob]\n")
    assert file.policy.named("bob") is not None
    write("nonsense")
    assert file.policy.named("bob") is not None
    write(f"# moved\n{BEFORE}[principals.bob]\n")
    assert file.policy is not known
    assert told == [([PrincipalChange("bob", "add", "")], True), ([], False)]
    assert [error is None for error in errors] == [True, False, True]
