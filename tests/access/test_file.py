"""The access file: what is refused, with its line; its lines in decisions; and how a change of it comes to count."""

from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from keyplan.access import ACCESS_BYTES_MAX, LOOK_SECONDS, AccessFile, OnKeySpace, OnOperation, read_policy
from keyplan.errors import InvalidInputError
from keyplan.operations import Act

TOKEN = "a-token-of-a-test-0123456789abcdef"
SUM = f"sha256:{sha256(TOKEN.encode()).hexdigest()}"
OTHER_SUM = f"sha256:{'0a' * 32}"
NOW = datetime(2026, 11, 23, 3, 30, tzinfo=UTC)

SOUND = f"""\
# Who may do what in the shop's store.

[principals.shop]  # its service
tokens = [
  "{SUM}",  # of the first host
  "{OTHER_SUM} until 2026-12-01T00:00:00Z",
]
certificates = ["subject:CN=shop,O=Example", "DNS:Shop.example"]
users = ["shop", 1001]
read = ["keyspace:carts", "application:shop",
        "operation:getAudit"]
write = ["keyspace:orders"]

[principals."ada@example.org"]
administer = ["everything"]
"""


def test_a_sound_file_is_a_policy_with_the_lines_of_its_grants() -> None:
    policy = read_policy(SOUND, source="access.toml")
    shop, ada = policy.principals
    assert (shop.name, shop.line, ada.name, ada.line) == ("shop", 3, "ada@example.org", 14)
    assert [(str(grant.act), str(grant.on), grant.line) for grant in policy.grants_of("shop")] == [
        ("read", "keyspace:carts", 10),
        ("read", "application:shop", 10),
        ("read", "operation:getAudit", 11),
        ("write", "keyspace:orders", 12),
    ]
    assert policy.known_by_token(TOKEN, at=NOW) is shop
    assert policy.known_by_certificate("CN=other", ["DNS:shop.example"]) is shop
    assert policy.known_by_user(1001, None) is shop
    assert policy.decide("ada@example.org", Act.ADMINISTER, OnOperation("sweep")).line == 15


def test_lines_that_end_as_on_windows_are_read_alike() -> None:
    policy = read_policy(SOUND.replace("\n", "\r\n"), source="access.toml")
    assert [grant.line for grant in policy.grants_of("shop")] == [10, 10, 11, 12]


def test_a_list_whose_lines_do_not_hold_whole_elements_is_named_by_its_first() -> None:
    text = '[principals.a]\nread = ["keyspace:x"\n  , "keyspace:y"\n]\n'
    assert [grant.line for grant in read_policy(text, source="f").grants_of("a")] == [2, 2]


def test_an_empty_file_has_nobody() -> None:
    assert list(read_policy("", source="f").principals) == []


HEAD = "[principals.a]\n"
# As `printf "$TOKEN" | sha256sum` and `echo "$TOKEN" | sha256sum` print them, where there is no such variable.
SUM_OF_NOTHING = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SUM_OF_A_LINE_END = "sha256:01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[principals.a]\nread = [", 2, "cannot be read as TOML"),
        ("[principals.a]\n\nread = everything\n", 3, "cannot be read as TOML"),
        ("read = []\n", 1, "write [principals.NAME] above it"),
        ("principals.a.read = []\n", 1, "write [principals.NAME] above it"),
        ("[principals]\n", 1, "a table is [principals.NAME]"),
        ("[principal.a]\n", 1, "a table is [principals.NAME]"),
        ("[[principals.a]]\n", 1, "a table is [principals.NAME]"),
        ("[principals.a.b]\n", 1, "a table is [principals.NAME]"),
        ('[principals."a b"]\n', 1, "a table is [principals.NAME]"),
        (f"{HEAD}\n{HEAD}", 3, "there is a principal a in line 1 already"),
        (f'{HEAD}["principals"."a"]\n', 2, "there is a principal a in line 1 already"),
        (f"{HEAD}read = []\nread = []\n", 3, "has read in line 2 already"),
        (f"{HEAD}reads = []\n", 2, "has no key 'reads'"),
        (f"{HEAD}read.x = []\n", 2, "read is a list"),
        (f'{HEAD}read = "everything"\n', 2, "read is a list"),
        (f"{HEAD}read = [\n  1,\n]\n", 3, "read is a list of texts"),
        (f"{HEAD}tokens = [{{ sha256 = 'x' }}]\n", 2, "tokens is a list of texts"),
        (f'{HEAD}tokens = [\n  "{TOKEN}",\n]\n', 3, "is to be used no more"),
        (f'{HEAD}tokens = ["short"]\n', 2, "is to be used no more"),
        (f'{HEAD}tokens = ["{SUM[:-1]}"]\n', 2, "64 hexadecimal digits"),
        (f'{HEAD}tokens = ["{SUM} until tomorrow"]\n', 2, "'tomorrow' is no moment"),
        (f'{HEAD}tokens = ["{SUM} until 2026-12-01T00:00:00"]\n', 2, "with its zone"),
        (f'{HEAD}tokens = ["{SUM}"]\n[principals.b]\ntokens = ["{SUM}"]\n', 4, "stands in line 2 already"),
        (f'{HEAD}certificates = ["CN=a"]\n', 2, "names no certificate"),
        (f'{HEAD}certificates = ["DNS:a"]\n[principals.b]\ncertificates = ["DNS:A"]\n', 4, "stands in line 2 already"),
        (f'{HEAD}certificates = ["IP:localhost"]\n', 2, "no IP address"),
        (f"{HEAD}users = [true]\n", 2, "a user is a name"),
        (f"{HEAD}users = [-1]\n", 2, "a user is a name"),
        (f'{HEAD}users = ["1001"]\n', 2, "a user is a name"),
        (f'{HEAD}users = ["a"]\n[principals.b]\nusers = ["a"]\n', 4, "stands in line 2 already"),
        (f'{HEAD}read = ["orders"]\n', 2, "nothing that a grant can be on"),
        (f'{HEAD}read = ["prefix:"]\n', 2, "nothing that a grant can be on"),
        (f'{HEAD}read = ["keyspace:"]\n', 2, "nothing that a grant can be on"),
        (f'{HEAD}read = ["prefix:0x2"]\n', 2, "two hexadecimal digits"),
        (f'{HEAD}read = ["prefix:0x"]\n', 2, "two hexadecimal digits"),
        (f'{HEAD}tokens = ["{SUM_OF_NOTHING}"]\n', 2, "it is the sum of nothing"),
        (f'{HEAD}tokens = ["{SUM_OF_A_LINE_END}"]\n', 2, "it is the sum of nothing"),
        (f"{HEAD}users = [{'9' * 5_000}]\n", 2, "cannot be read as TOML"),
        (f"{HEAD}read = {'[' * 5_000}\n", 2, "brackets within brackets"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_policy(text, source="access.toml")
    assert caught.value.source == f"access.toml:{line}"
    assert words in str(caught.value.problem)
    assert TOKEN not in str(caught.value)
    assert "short" not in str(caught.value)


# ---- on disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "access.toml"
    found.write_text(SOUND)
    found.chmod(0o600)
    return found


class Seconds:
    """A clock that stands still until it is told."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def refusal_of(path: Path) -> str:
    with pytest.raises(InvalidInputError) as caught:
        AccessFile(path, monotonic=Seconds().monotonic)
    assert str(caught.value.source).startswith(str(path))
    return str(caught.value.problem)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_only_its_owner_may_read_or_write_the_file(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert "chmod 600" in refusal_of(path)


def test_a_file_that_is_none_is_refused(tmp_path: Path, path: Path) -> None:
    assert "`keyplan access add`" in refusal_of(tmp_path / "missing")
    assert "cannot be read" in refusal_of(path / "below")
    assert "no file" in refusal_of(tmp_path)
    path.write_bytes(b"\xff")
    assert "UTF-8" in refusal_of(path)
    path.write_bytes(b"#" * (ACCESS_BYTES_MAX + 1))
    assert "bytes" in refusal_of(path)


def test_an_unsound_file_is_refused_at_the_start(path: Path) -> None:
    path.write_text(SOUND + "reads = []\n")
    assert "no key 'reads'" in refusal_of(path)


def may_write(file: AccessFile) -> bool:
    return file.policy.decide("shop", Act.WRITE, OnKeySpace("orders")).is_allowed


def test_a_change_counts_after_a_moment_and_is_told_once(path: Path) -> None:
    clock = Seconds()
    told: list[InvalidInputError | None] = []
    file = AccessFile(path, monotonic=clock.monotonic, on_change=told.append)
    before = file.policy
    path.write_text(SOUND.replace('write = ["keyspace:orders"]', ""))
    clock.now += LOOK_SECONDS / 2
    assert file.policy is before
    clock.now += LOOK_SECONDS / 2
    assert not may_write(file)
    clock.now += LOOK_SECONDS
    assert not may_write(file)
    assert told == [None]


def test_the_same_bytes_are_the_same_policy(path: Path) -> None:
    clock = Seconds()
    file = AccessFile(path, monotonic=clock.monotonic)
    before = file.policy
    other = path.with_name("other")
    other.write_text(SOUND)
    other.chmod(0o600)
    other.replace(path)
    clock.now += LOOK_SECONDS
    assert file.policy is before


def test_an_unsound_change_opens_nothing_closes_nothing_and_is_told_once_for_each_state(path: Path) -> None:
    clock = Seconds()
    told: list[InvalidInputError | None] = []
    file = AccessFile(path, monotonic=clock.monotonic, on_change=told.append)

    def look(content: str, mode: int = 0o600) -> None:
        path.write_text(content)
        path.chmod(mode)
        for _ in range(3):
            clock.now += LOOK_SECONDS
            assert may_write(file)
            assert not file.policy.decide("shop", Act.ADMINISTER, OnOperation("sweep")).is_allowed

    opened = SOUND.replace('write = ["keyspace:orders"]', 'write = ["everything"]\nadminister = ["everything"]')
    look(opened + "oops")
    look(opened + "[principals.shop]\n")
    look(opened, mode=0o644)
    path.unlink()
    clock.now += LOOK_SECONDS
    assert may_write(file)
    problems = [str(error.problem) for error in told if error is not None]
    assert len(problems) == len(told) == 4
    assert [
        word in problem for word, problem in zip(("TOML", "already", "chmod", "no such"), problems, strict=True)
    ] == [True] * 4
    path.write_text(SOUND)
    path.chmod(0o600)
    clock.now += LOOK_SECONDS
    assert may_write(file)
    assert told[4:] == [None]  # sound again, and worth a line


def test_every_beginning_of_a_sound_file_grants_nothing_more() -> None:
    whole = read_policy(SOUND, source="f")
    for length in range(len(SOUND)):
        try:
            part = read_policy(SOUND[:length], source="f")
        except InvalidInputError:
            continue
        for principal in part.principals:
            known = whole.named(principal.name)
            assert known is not None
            assert set(principal.grants) <= set(known.grants)
            assert set(principal.tokens) <= set(known.tokens)
            assert set(principal.users) <= set(known.users)
            assert set(principal.certificates) <= set(known.certificates)


@pytest.mark.parametrize(
    "subject",
    ["/O=shop/CN=till", "CN = till, O = shop", "CN=till, O=shop", "till", "CN=till,", "CN= till", "CN=till,shop"],
)
def test_a_subject_in_a_form_that_never_matches_is_refused_with_the_form_that_does(path: Path, subject: str) -> None:
    path.write_text(f'[principals.till]\ncertificates = ["subject:{subject}"]\n')
    problem = refusal_of(path)
    assert repr(subject) in problem
    assert "-nameopt RFC2253" in problem


@pytest.mark.parametrize("subject", ["CN=till", "CN=a\\\\, b,O=x+OU=y,1.2.3=z", "CN=Zo\u00eb Inc.,C=DE", "O=,CN=a=b"])
def test_a_subject_as_it_is_compared_is_taken(path: Path, subject: str) -> None:
    path.write_text(f'[principals.till]\ncertificates = ["subject:{subject}"]\n')
    known = AccessFile(path, monotonic=Seconds().monotonic).policy.named("till")
    assert known is not None
    assert known.certificates == (f"subject:{subject}".replace("\\\\", "\\"),)
