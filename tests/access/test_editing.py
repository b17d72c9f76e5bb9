"""Commands change an access file as a careful hand would: only what they are asked for, comments and order as they were."""

import re
import stat
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from subprocess import Popen

import pytest

from keyplan.access import (
    TOKEN_CHARACTERS_MIN,
    add_principal,
    change_access_file,
    change_principal,
    new_token,
    read_policy,
    remove_principal,
    remove_token,
    rotate_token,
)
from keyplan.errors import InvalidInputError, UnknownNameError
from keyplan.operations import Act

NOW = datetime(2026, 11, 23, 3, 30, tzinfo=UTC)
OLD, OLDER, NEW = ("an-old-token-" * 4, "an-older-token-" * 4, "a-new-token-" * 4)


def sum_of(token: str) -> str:
    return "sha256:" + sha256(token.encode()).hexdigest()


FILE = f"""\
# The shop's store.

# The service itself.
[principals.shop]  # two hosts
tokens = [
  "{sum_of(OLD)}",  # the first host
  # an older one
  "{sum_of(OLDER)} until 2026-11-23T03:30:10Z",
]

read = ["application:shop"]  # all of it

# Ada, who watches over it.
[principals."ada@example.org"]
audit = ["everything"]
# the end
"""


def lines_that_differ(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def test_a_new_token_is_long_random_and_fits_into_a_header() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"kp_[A-Za-z0-9_-]{43}", token) for token in tokens)
    assert all(len(token) >= TOKEN_CHARACTERS_MIN for token in tokens)


def test_a_principal_is_added_at_the_end() -> None:
    grants = {Act.READ: ["keyspace:orders", "prefix:/service/"], Act.ADMINISTER: ["everything"]}
    facts = {"certificates": ["DNS:Ben.example", 'subject:CN=\\"b\\\\'], "users": ["ben", 7], "grants": grants}
    added = add_principal(FILE, "ben.b", token=NEW, source="f", **facts)  # type: ignore[arg-type]
    assert added.startswith(FILE)
    assert added.removeprefix(FILE).splitlines() == [
        "",
        '[principals."ben.b"]',
        f'tokens = ["{sum_of(NEW)}"]',
        'certificates = ["DNS:ben.example", "subject:CN=\\\\\\"b\\\\\\\\"]',
        'users = ["ben", 7]',
        'read = ["keyspace:orders", "prefix:/service/"]',
        'administer = ["everything"]',
    ]
    policy = read_policy(added, source="f")
    found = policy.known_by_token(NEW, at=NOW)
    assert found is not None
    assert found.name == "ben.b"
    assert [str(grant.on) for grant in policy.grants_of("ben.b")] == [
        "keyspace:orders",
        "prefix:/service/",
        "everything",
    ]


@pytest.mark.parametrize("text", ["", "# only a comment", FILE.rstrip("\n")])
def test_a_principal_is_added_to_whatever_there_is(text: str) -> None:
    added = add_principal(text, "ben", token=NEW, grants={}, source="f")
    assert added.startswith(text)
    assert read_policy(added, source="f").known_by_token(NEW, at=NOW) is not None


@pytest.mark.parametrize("name", ["shop", "a b", ""])
def test_a_name_that_is_there_or_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError):
        add_principal(FILE, name, token=None, grants={}, source="f")


def test_a_rotation_writes_the_new_token_and_leaves_the_others_until_they_are_revoked() -> None:
    rotated = rotate_token(FILE, "shop", NEW, now=NOW, source="f")
    assert lines_that_differ(FILE, rotated) == ([], [f'  "{sum_of(NEW)}",'])
    policy = read_policy(rotated, source="f")
    assert all(policy.known_by_token(token, at=NOW) for token in (OLD, OLDER, NEW))
    assert policy.known_by_token(OLDER, at=NOW + timedelta(seconds=10)) is None


def test_a_rotation_may_let_the_old_tokens_count_for_a_while_and_never_longer_than_they_did() -> None:
    rotated = rotate_token(FILE, "shop", NEW, now=NOW, keep_seconds=60, source="f")
    assert lines_that_differ(FILE, rotated) == (
        [f'  "{sum_of(OLD)}",  # the first host'],
        [f'  "{sum_of(NEW)}",', f'  "{sum_of(OLD)} until 2026-11-23T03:31:00Z",  # the first host'],
    )
    policy = read_policy(rotated, source="f")
    assert policy.known_by_token(OLD, at=NOW + timedelta(seconds=59))
    assert not policy.known_by_token(OLD, at=NOW + timedelta(seconds=60))
    assert not policy.known_by_token(OLDER, at=NOW + timedelta(seconds=10))


def test_a_rotation_that_keeps_nothing_and_one_after_their_time_remove_the_old_tokens() -> None:
    rotated = rotate_token(FILE, "shop", NEW, now=NOW, keep_seconds=0, source="f")
    assert [word in rotated for word in (sum_of(NEW), sum_of(OLD), sum_of(OLDER))] == [True, False, False]
    assert "# an older one" in rotated
    later = rotate_token(FILE, "shop", NEW, now=NOW + timedelta(seconds=10), source="f")
    assert [word in later for word in (sum_of(NEW), sum_of(OLD), sum_of(OLDER))] == [True, True, False]


@pytest.mark.parametrize("keep", [-1, float("nan"), float("inf"), 1e9])
def test_a_rotation_keeps_no_token_for_a_time_that_is_none(keep: float) -> None:
    with pytest.raises(InvalidInputError, match="no number of seconds from 0 to"):
        rotate_token(FILE, "shop", NEW, now=NOW, keep_seconds=keep, source="f")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["tokens = []"],
        ["tokens=[ ]"],
        [f"tokens = ['{sum_of(OLD)}']"],
        [f'tokens = ["sha256:{sum_of(OLD)[7:].upper()}", "{sum_of(OLDER)}"]'],
        ["tokens = [  # all", f'  "{sum_of(OLD)}", "{sum_of(OLDER)}" ]'],
        ['"tokens" = [', f'"{sum_of(OLD)}"', "]"],
    ],
    ids=range(7),
)
@pytest.mark.parametrize("keep", [None, 0, 5.5])
def test_a_rotation_finds_its_way_through_any_list(lines: Sequence[str], keep: float | None) -> None:
    text = "\n".join(["[principals.a]", *lines, 'read = ["everything"]', ""])
    before = {token for token in (OLD, OLDER) if read_policy(text, source="f").known_by_token(token, at=NOW)}
    rotated = rotate_token(text, "a", NEW, now=NOW, keep_seconds=keep, source="f")
    policy = read_policy(rotated, source="f")
    assert {token for token in (OLD, OLDER, NEW) if policy.known_by_token(token, at=NOW)} == (
        {NEW} if keep == 0 else {NEW, *before}
    )
    assert bool(policy.known_by_token(OLD, at=NOW + timedelta(seconds=6))) == (keep is None and OLD in before)
    assert '\nread = ["everything"]\n' in rotated


def test_what_a_command_cannot_change_without_a_loss_is_refused() -> None:
    odd = FILE.replace(sum_of(OLD), sum_of(OLD).replace("sha", "\\u0073ha"))
    assert read_policy(odd, source="f").known_by_token(OLD, at=NOW)
    with pytest.raises(InvalidInputError) as caught:
        rotate_token(odd, "shop", NEW, now=NOW, keep_seconds=0, source="f")
    assert "by hand" in str(caught.value.problem)


def test_one_token_is_revoked_by_the_digits_of_its_sum() -> None:
    digits = sum_of(OLD).removeprefix("sha256:")
    revoked = remove_token(FILE, "shop", digits[:8].upper(), source="f")
    assert lines_that_differ(FILE, revoked) == ([f'  "{sum_of(OLD)}",  # the first host'], [])
    for wrong in (digits[:7], "00000000", ""):
        with pytest.raises(InvalidInputError) as caught:
            remove_token(FILE, "shop", wrong, source="f")
        assert digits[:8] in str(caught.value.problem)


def test_a_token_that_goes_leaves_no_comma_and_no_words_about_it() -> None:
    one_line = f'[principals.a]\ntokens = ["{sum_of(OLD)}", "{sum_of(OLDER)}"]  # two\n'
    revoked = remove_token(one_line, "a", sum_of(OLDER)[7:15], source="f")
    assert revoked == f'[principals.a]\ntokens = ["{sum_of(OLD)}"]  # two\n'
    rotated = rotate_token(FILE, "shop", NEW, now=NOW, keep_seconds=0, source="f")
    assert rotated.splitlines()[4:9] == ["tokens = [", f'  "{sum_of(NEW)}",', "  # an older one", "]", ""]


def test_a_principal_is_removed_with_the_comment_above_it_and_nothing_else() -> None:
    removed = remove_principal(FILE, "shop", source="f")
    assert removed == "# The shop's store.\n\n" + FILE[FILE.index("# Ada") :]
    assert remove_principal(removed, "ada@example.org", source="f") == "# The shop's store.\n\n# the end\n"
    first = "# This file.\n[principals.a]\nread = []\n"
    assert remove_principal(first, "a", source="f") == "# This file.\n"


def test_a_principal_that_is_not_there_is_named_with_those_that_are() -> None:
    changes: Sequence[Callable[[], str]] = (
        lambda: rotate_token(FILE, "shopp", NEW, now=NOW, source="f"),
        lambda: remove_token(FILE, "shopp", "0" * 8, source="f"),
        lambda: remove_principal(FILE, "shopp", source="f"),
    )
    for change in changes:
        with pytest.raises(UnknownNameError) as caught:
            change()
        assert caught.value.known == ["ada@example.org", "shop"]


# ---- on disk ---------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_for_its_owner_alone_and_a_link_to_it_stays(tmp_path: Path) -> None:
    path, link = tmp_path / "access.toml", tmp_path / "link"
    link.symlink_to(path)
    change_access_file(link, lambda text: text + "# more\n", new="# new\n")
    assert link.is_symlink()
    assert path.read_text() == "# new\n# more\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in tmp_path.iterdir()) == ["access.toml", "link"]


def test_a_change_that_is_refused_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("oops")
    path.chmod(0o600)
    with pytest.raises(InvalidInputError):
        change_access_file(path, lambda text: remove_principal(text, "a", source="f"))
    assert path.read_text() == "oops"
    with pytest.raises(InvalidInputError, match="no such file"):
        change_access_file(tmp_path / "missing", str)
    with pytest.raises(InvalidInputError, match="folder"):
        change_access_file(tmp_path / "missing" / "below", str, new="")


def test_commands_of_several_processes_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    program = (
        "import sys; from pathlib import Path; from keyplan.access import change_access_file as change\n"
        "for _ in range(4): change(Path(sys.argv[1]), lambda text: text + sys.argv[2] + '\\n', new='')"
    )
    writers = [Popen([sys.executable, "-c", program, str(path), f"# {number}"]) for number in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert sorted(path.read_text().splitlines()) == sorted(["# 0", "# 1", "# 2"] * 4)


# ---- grants, certificates, users, labels -----------------------------------------------------------------------------

ODD = """\
[principals.shop]
read = ["application:shop", 'prefix:/a/', "prefix:0x2f622f"]  # three
write = [
  "application:shop",  # all of it
  # "prefix:/c/",
  "prefix:/c/",        # what a clerk writes
]
users = ["shop", 1001]

[principals.crowd]
users = [1100, 10, 5]

# Nobody yet.
[principals.clerk]
"""


def changed(text: str, who: str, **elements: object) -> str:
    return change_principal(text, who, source="access.toml", **elements)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("who", "elements", "gone", "come"),
    [
        ("clerk", {"added": {"read": ["prefix:/c/"]}}, [], ['read = ["prefix:/c/"]']),
        ("clerk", {"added": {"users": [7, "clerk"]}}, [], ['users = ["clerk", 7]']),
        ("shop", {"added": {"audit": ["everything"]}}, [], ['audit = ["everything"]']),
        ("shop", {"added": {"write": ["prefix:/d/"]}}, [], ['  "prefix:/d/",']),
        ("shop", {"removed": {"write": ["prefix:/c/"]}}, ['  "prefix:/c/",        # what a clerk writes'], []),
        (
            "shop",
            {"removed": {"read": ["prefix:/a/"]}},
            ["""read = ["application:shop", 'prefix:/a/', "prefix:0x2f622f"]  # three"""],
            ['read = ["application:shop", "prefix:0x2f622f"]  # three'],
        ),
        (
            "shop",
            {"removed": {"read": ["prefix:/b/"]}},
            ["""read = ["application:shop", 'prefix:/a/', "prefix:0x2f622f"]  # three"""],
            ["""read = ["application:shop", 'prefix:/a/']  # three"""],
        ),
        ("shop", {"removed": {"users": [1001]}}, ['users = ["shop", 1001]'], ['users = ["shop"]']),
        ("crowd", {"removed": {"users": [10]}}, ["users = [1100, 10, 5]"], ["users = [1100, 5]"]),
        (
            "shop",
            {"removed": {"users": ["shop", 1001]}, "added": {"users": [1002]}},
            ['users = ["shop", 1001]'],
            ["users = [1002]"],
        ),
        ("shop", {"added": {"certificates": ["dns:Shop.Example"]}}, None, None),
        ("shop", {"added": {"labels": ["project:p", "user:u"]}}, [], ['labels = ["user:u", "project:p"]']),
    ],
)
def test_only_the_elements_that_were_asked_for_change(
    who: str, elements: dict[str, object], gone: list[str] | None, come: list[str] | None
) -> None:
    if gone is None:
        with pytest.raises(InvalidInputError, match="certificate"):
            changed(ODD, who, **elements)
        return
    text = changed(ODD, who, **elements)
    assert lines_that_differ(ODD, text) == (gone, come)


def test_what_is_added_and_removed_again_leaves_the_file_as_it_was() -> None:
    for key, element in (
        ("read", "operation:getAudit"),
        ("users", 7),
        ("labels", "role:r"),
        ("certificates", "DNS:a.b"),
    ):
        added = changed(ODD, "shop", added={key: [element]})
        assert read_policy(added, source="x").named("shop") is not None
        again = changed(added, "shop", removed={key: [element]})
        assert again.replace(f"{key} = []\n", "") == ODD
        assert changed(added, "shop", added={key: [element]}) == added, "it is there already"


def test_a_grant_is_found_however_it_is_written() -> None:
    text = changed(ODD, "shop", removed={"read": ["prefix:0x2f612f", "prefix:/b/"]})
    policy = read_policy(text, source="x")
    assert [str(grant.on) for grant in policy.grants_of("shop") if grant.act is Act.READ] == ["application:shop"]


@pytest.mark.parametrize(
    ("who", "elements", "kind", "words"),
    [
        ("nobody", {"added": {"read": ["everything"]}}, UnknownNameError, "nobody"),
        ("shop", {"removed": {"read": ["everything"]}}, InvalidInputError, "are: application:shop"),
        ("clerk", {"removed": {"read": ["everything"]}}, InvalidInputError, "are: nothing"),
        ("shop", {"added": {"read": ["all"]}}, InvalidInputError, "all"),
        ("clerk", {"added": {"users": ["shop"]}}, InvalidInputError, "stands in line"),
        ("clerk", {"added": {"labels": ["planet:mars"]}}, InvalidInputError, "planet"),
    ],
)
def test_what_is_no_such_change_is_refused(
    who: str, elements: dict[str, object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        changed(ODD, who, **elements)


def test_a_list_that_is_written_too_oddly_is_left_to_a_hand() -> None:
    odd = '[principals.shop]\nread = ["prefix:/a/", "pr\\u0065fix:/b/"]\n'
    with pytest.raises(InvalidInputError, match="by hand"):
        changed(odd, "shop", removed={"read": ["prefix:/b/"]})
