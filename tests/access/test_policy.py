"""Decisions, judged by a model that knows nothing of targets but the points within them; and who is known by what."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyplan.access import (
    EVERYTHING,
    Grant,
    OnApplication,
    OnKeySpace,
    OnOperation,
    OnPrefix,
    Policy,
    Principal,
    Target,
    TokenSum,
    target_of,
)
from keyplan.operations import Act

NOW = datetime(2026, 11, 23, 3, 30, tzinfo=UTC)
TOKEN = "a-token-of-a-test-0123456789abcdef"

# ---- a model: a target is the set of points within it, and a grant is good for every subset --------------------------------

APPLICATION_OF = {"orders": "shop", "carts": "shop", "bank": "bank", "later": "shop"}
KEYS = frozenset(bytes(key) for length in range(4) for key in product(b"ab", repeat=length))
POINTS = {
    *(("key space", name) for name in APPLICATION_OF),
    *(("key", key) for key in KEYS),
    *(("operation", name) for name in ("getAudit", "sweep")),
    ("the store itself", ""),
}


def points_of(target: Target) -> frozenset[object]:
    match target:
        case OnKeySpace(name):
            return frozenset({("key space", name)})
        case OnApplication(name):
            ours = {("key space", one) for one, owner in APPLICATION_OF.items() if owner == name}
            return frozenset({*ours, ("a key space to come", name)})
        case OnPrefix(prefix):
            return frozenset(("key", key) for key in KEYS if key.startswith(prefix))
        case OnOperation(name):
            return frozenset({("operation", name)})
        case _:
            applications = {("a key space to come", owner) for owner in APPLICATION_OF.values()}
            return frozenset({*POINTS, *applications})


def asked_for(target: Target) -> Target:
    """As a server asks, which knows the application of a key space."""
    return OnKeySpace(target.name, APPLICATION_OF[target.name]) if isinstance(target, OnKeySpace) else target


targets: st.SearchStrategy[Target] = st.one_of(
    st.just(EVERYTHING),
    st.sampled_from(sorted(APPLICATION_OF)).map(OnKeySpace),
    st.sampled_from(sorted(set(APPLICATION_OF.values()))).map(OnApplication),
    st.sampled_from(sorted(key for key in KEYS if key)).map(OnPrefix),
    st.sampled_from(("getAudit", "sweep")).map(OnOperation),
)
acts = st.sampled_from(list(Act))
names = st.sampled_from(["ada", "ben", "nobody"])


def test_a_prefix_of_bytes_that_are_no_text_is_written_as_digits_and_read_from_a_command_line() -> None:
    on = OnPrefix(b"\x80x")
    assert str(on) == "prefix:0x8078"
    assert {target_of(words, source="f") for words in ("prefix:0x8078", "prefix:\udc80x")} == {on}


@given(granted=st.dictionaries(names, st.lists(st.tuples(acts, targets), max_size=6)), who=names, act=acts, on=targets)
def test_what_is_allowed_lies_within_one_grant_and_the_first_such_line_decides(
    granted: dict[str, list[tuple[Act, Target]]], who: str, act: Act, on: Target
) -> None:
    principals, lines = [], iter(range(1, 1_000))
    for name, pairs in granted.items():
        grants = tuple(Grant(one, target, next(lines)) for one, target in pairs)
        principals.append(Principal(name=name, grants=grants))
    policy = Policy(principals)
    mine = [grant for principal in principals if principal.name == who for grant in principal.grants]
    covering = [grant.line for grant in mine if grant.act == act and points_of(on) <= points_of(grant.on)]

    decision = policy.decide(who, act, asked_for(on))

    assert decision.is_allowed == policy.allows(who, act, asked_for(on)) == bool(covering)
    assert decision.line == (min(covering) if covering else None)
    assert list(policy.grants_of(who)) == mine
    together = frozenset().union(*(points_of(grant.on) for grant in mine if grant.act == act))
    assert decision.is_allowed == (points_of(on) <= together)  # grants join to nothing that none of them is


def test_a_policy_without_principals_allows_nobody_anything() -> None:
    assert not Policy().decide("ada", Act.READ, OnOperation("getAudit")).is_allowed
    assert Policy().grants_of("ada") == ()


def test_a_key_space_whose_application_is_not_known_is_no_applications() -> None:
    policy = Policy([Principal(name="ada", grants=(Grant(Act.READ, OnApplication("shop"), 3),))])
    assert policy.decide("ada", Act.READ, OnKeySpace("orders", "shop")).line == 3
    assert not policy.decide("ada", Act.READ, OnKeySpace("orders")).is_allowed


def test_the_reason_says_which_line_decides() -> None:
    policy = Policy([Principal(name="ada", grants=(Grant(Act.READ, OnPrefix(b"/service/"), 7),))])
    assert policy.decide("ada", Act.READ, OnPrefix(b"/service/batman/")).reason == (
        "line 7 grants ada to read prefix:/service/"
    )
    assert policy.decide("ada", Act.WRITE, OnPrefix(b"/service/")).reason == (
        "no line grants ada to write prefix:/service/"
    )
    assert policy.decide("eve", Act.READ, EVERYTHING).reason == "there is no principal eve"


# ---- who asks --------------------------------------------------------------------------------------------------------


def sum_of(text: str) -> bytes:
    return sha256(text.encode()).digest()


def test_a_token_is_known_by_its_sum_until_its_moment() -> None:
    ada = Principal(name="ada", tokens=(TokenSum(sum_of(TOKEN), NOW + timedelta(seconds=1)),))
    policy = Policy([ada])
    assert policy.known_by_token(TOKEN, at=NOW) is ada
    assert policy.known_by_token(TOKEN, at=NOW + timedelta(seconds=1)) is None
    assert policy.known_by_token(TOKEN[:-1], at=NOW) is None
    assert policy.known_by_token(TOKEN + "\udcff", at=NOW) is None


def test_a_short_token_is_nobodys_although_its_sum_is_known() -> None:
    short, long = "x" * 31, "x" * 32
    policy = Policy([Principal(name="ada", tokens=(TokenSum(sum_of(short)), TokenSum(sum_of(long))))])
    assert policy.known_by_token(short, at=NOW) is None
    assert policy.known_by_token(long, at=NOW) is not None


def test_sums_that_begin_alike_are_told_apart() -> None:
    other = sum_of(TOKEN)[:-1] + bytes([sum_of(TOKEN)[-1] ^ 1])
    ada, ben = (
        Principal(name="ada", tokens=(TokenSum(other),)),
        Principal(name="ben", tokens=(TokenSum(sum_of(TOKEN)),)),
    )
    assert Policy([ada, ben]).known_by_token(TOKEN, at=NOW) is ben


def test_a_certificate_is_known_by_its_subject_or_by_another_of_its_names() -> None:
    ada = Principal(name="ada", certificates=("subject:CN=ada,O=Example",))
    ben = Principal(name="ben", certificates=("DNS:ben.example",))
    policy = Policy([ada, ben])
    assert policy.known_by_certificate("CN=ada,O=Example", ()) is ada
    assert policy.known_by_certificate("CN=other", ("URI:x", "DNS:ben.example")) is ben
    assert policy.known_by_certificate("CN=ada", ("DNS:ben.example.evil",)) is None


def test_a_user_is_known_by_number_or_name() -> None:
    ada, ben = Principal(name="ada", users=(1001,)), Principal(name="ben", users=("ben",))
    policy = Policy([ada, ben])
    assert policy.known_by_user(1001, None) is ada
    assert policy.known_by_user(1002, "ben") is ben
    assert policy.known_by_user(1003, "eve") is None


def test_who_would_be_two_principals_is_nobody() -> None:
    ada = Principal(name="ada", users=(1001,), certificates=("subject:CN=x",))
    ben = Principal(name="ben", users=("ben",), certificates=("DNS:x",))
    policy = Policy([ada, ben])
    assert policy.known_by_user(1001, "ben") is None
    assert policy.known_by_certificate("CN=x", ("DNS:x",)) is None
    both = Principal(name="both", users=(1001, "ben"))
    assert Policy([both]).known_by_user(1001, "ben") is both


@pytest.mark.parametrize(
    "second",
    [
        Principal(name="ada"),
        Principal(name="ben", tokens=(TokenSum(sum_of(TOKEN)),)),
        Principal(name="ben", users=(7,)),
        Principal(name="ben", certificates=("DNS:a",)),
    ],
    ids=["name", "token", "user", "certificate"],
)
def test_two_principals_share_nothing(second: Principal) -> None:
    first = Principal(name="ada", tokens=(TokenSum(sum_of(TOKEN)),), users=(7,), certificates=("DNS:a",))
    with pytest.raises(ValueError, match="stands twice"):
        Policy([first, second])


def test_principals_beside_a_policy_take_nothing_from_it() -> None:
    first = Principal(name="ada", tokens=(TokenSum(sum_of(TOKEN)),), users=(7,), certificates=("DNS:a",))
    good = Principal(
        name="cluster:f1", tokens=(TokenSum(sum_of(TOKEN + "1")),), grants=(Grant(Act.READ, EVERYTHING, 0),)
    )
    same_token = Principal(name="cluster:f2", tokens=(TokenSum(sum_of(TOKEN)), TokenSum(sum_of(TOKEN + "2"))))
    as_good = Principal(name="cluster:f3", tokens=good.tokens)
    others = [Principal(name="ada", users=(8,)), same_token, good, as_good]
    others += [Principal(name="u", users=(7,)), Principal(name="c", certificates=("DNS:a",))]
    others.append(Principal(name="twice the same", users=(9, 9)))
    policy = Policy([first]).beside(others)
    assert policy.principals == (first, good)
    assert policy.known_by_token(TOKEN, at=NOW) is first
    assert policy.known_by_token(TOKEN + "1", at=NOW) is good
    assert policy.known_by_token(TOKEN + "2", at=NOW) is None
    assert policy.grants_of("cluster:f1") is good.grants
    assert policy.known_by_user(8, None) is None


def test_a_sum_is_not_shown() -> None:
    ada = Principal(name="ada", tokens=(TokenSum(sum_of(TOKEN)),))
    assert sum_of(TOKEN).hex() not in repr(ada)
    assert repr(sum_of(TOKEN)) not in repr(ada)
