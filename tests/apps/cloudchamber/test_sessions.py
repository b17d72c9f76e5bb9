"""Sessions and the bound on logins, with a clock that the test moves; passwords and rights by themselves."""

import pytest

from keyplan import Secret
from keyplan.apps.cloudchamber import CloudChamber, Rights, User
from keyplan.apps.cloudchamber.accounts import (
    ALL_RIGHTS,
    described_rights,
    hashed_password,
    is_password,
    rights_beyond,
    rights_of,
)
from keyplan.apps.cloudchamber.refusals import RefusedError
from keyplan.apps.cloudchamber.sessions import LoginBound, SessionTable
from keyplan.layout import Versioned
from keyplan.testing.faults import FakeClock


def stored(*, create_revision: int = 1, password_hash: bytes = b"h", enabled: bool = True) -> Versioned[str, User]:
    return Versioned("bob", User(enabled=enabled, password_hash=Secret(password_hash)), create_revision, 5, 1, 0)


def test_every_use_lets_a_session_live_on() -> None:
    """3.5, 10: the original counted from the first use."""
    clock = FakeClock()
    table = SessionTable(clock, inactivity_seconds=100, sessions_max=3)
    session = table.open(stored())
    for _ in range(5):
        clock.advance(99)
        assert table.find(session.secret) is session
    clock.advance(101)
    assert table.find(session.secret) is None
    assert list(table) == []


def test_looking_at_a_session_does_not_let_it_live_longer() -> None:
    clock = FakeClock()
    table = SessionTable(clock, inactivity_seconds=100, sessions_max=3)
    session = table.open(stored())
    clock.advance(60)
    assert table.of_id(session.id) is session
    assert table.seconds_left(session) == 40
    clock.advance(41)
    assert table.of_id(session.id) is None


def of(name: str) -> Versioned[str, User]:
    return stored()._replace(key=name)


def test_expired_sessions_make_room() -> None:
    clock = FakeClock()
    table = SessionTable(clock, inactivity_seconds=100, sessions_max=2)
    first, second = table.open(of("ada")), table.open(of("bob"))
    assert first.secret != second.secret
    with pytest.raises(RefusedError) as caught:
        table.open(of("eve"))
    assert caught.value.status == 400
    clock.advance(101)
    assert table.open(of("eve")).id == 3


def test_one_user_ends_sessions_of_their_own_and_locks_nobody_out() -> None:
    table = SessionTable(FakeClock(), inactivity_seconds=100, sessions_max=30)
    others = [table.open(of(name)) for name in ("ada", "bob")]
    mine = [table.open(of("eve")) for _ in range(50)]
    assert [one.id for one in table if one.user == "eve"] == [one.id for one in mine[-3:]]
    assert all(table.is_open(one) for one in others)
    full = [table.open(of(f"user{number}")) for number in range(25)]
    assert table.is_open(table.open(of("ada"))), "a full server lets who is logged in log in again"
    assert [table.is_open(others[0]), table.is_open(full[0])] == [False, True]


@pytest.mark.parametrize(
    ("user", "is_same"),
    [
        (stored(), True),
        (None, False),
        (stored(enabled=False), False),
        (stored(create_revision=2), False),
        (stored(password_hash=b"other"), False),
    ],
)
def test_a_session_belongs_to_the_account_that_logged_in(user: Versioned[str, User] | None, *, is_same: bool) -> None:
    session = SessionTable(FakeClock(), inactivity_seconds=100, sessions_max=2).open(stored())
    assert session.is_of(user) is is_same
    assert session.secret not in repr(session)


def test_ten_failed_logins_a_minute_and_then_none() -> None:
    clock = FakeClock()
    bound = LoginBound(clock)
    for _ in range(10):
        bound.begin("1.2.3.4", "bob")
        clock.advance(1)
    with pytest.raises(RefusedError) as caught:
        bound.begin("1.2.3.4", "bob")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "51"})
    bound.begin("1.2.3.4", "alice")
    bound.begin("5.6.7.8", "bob")
    clock.advance(51)
    bound.begin("1.2.3.4", "bob")


def test_logins_that_succeed_are_not_bounded() -> None:
    bound = LoginBound(FakeClock())
    for _ in range(300):
        bound.begin("1.2.3.4", "bob")
        bound.succeeded("1.2.3.4", "bob")


def address(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250}"


def is_let_in(bound: LoginBound, client: str, user: str) -> bool:
    """Whether the next try is taken; it counts as one that fails."""
    try:
        bound.begin(client, user)
    except RefusedError:
        return False
    return True


def test_many_clients_guess_no_more_passwords_of_one_user_than_a_hundred_a_minute() -> None:
    clock = FakeClock()
    bound = LoginBound(clock)
    assert [is_let_in(bound, address(number), "bob") for number in range(150)] == [True] * 100 + [False] * 50
    assert is_let_in(bound, address(1), "alice")
    clock.advance(61)
    assert is_let_in(bound, address(151), "bob")


def test_who_was_let_in_from_somewhere_is_not_locked_out_there_by_strangers() -> None:
    clock = FakeClock()
    bound = LoginBound(clock)
    bound.begin("192.0.2.1", "bob")
    bound.succeeded("192.0.2.1", "bob")
    for number in range(120):
        is_let_in(bound, address(number), "bob")
    assert not is_let_in(bound, "192.0.2.2", "bob"), "a new address waits"
    for _ in range(3):
        bound.begin("192.0.2.1", "bob")
        bound.succeeded("192.0.2.1", "bob")
    # There the bound of the address is what it was.
    assert [is_let_in(bound, "192.0.2.1", "bob") for _ in range(12)] == [True] * 10 + [False] * 2
    assert not is_let_in(bound, "192.0.2.1", "bob")
    assert not is_let_in(bound, "192.0.2.1", "bob")
    clock.advance(61)
    assert [is_let_in(bound, address(number), "bob") for number in range(101)] == [True] * 100 + [False]


def test_a_try_where_somebody_was_let_in_is_none_of_strangers() -> None:
    bound = LoginBound(FakeClock())
    bound.begin("192.0.2.1", "bob")
    bound.succeeded("192.0.2.1", "bob")
    for _ in range(10):
        bound.begin("192.0.2.1", "bob")
    assert [is_let_in(bound, address(number), "bob") for number in range(101)] == [True] * 100 + [False]


def test_a_success_gives_back_its_own_try_alone() -> None:
    bound = LoginBound(FakeClock())
    for number in range(99):
        bound.begin(address(number), "bob")
    bound.begin(address(200), "bob")
    bound.succeeded(address(200), "bob")
    assert [is_let_in(bound, address(number), "bob") for number in (201, 202)] == [True, False]


def test_a_machine_has_all_addresses_of_its_network() -> None:
    bound = LoginBound(FakeClock())
    assert [is_let_in(bound, f"2001:db8::{number:x}", "bob") for number in range(12)] == [True] * 10 + [False] * 2
    assert is_let_in(bound, "2001:db8:0:1::1", "bob")


def test_users_without_an_address_are_counted_apart_from_all() -> None:
    bound = LoginBound(FakeClock())
    assert [is_let_in(bound, "", "bob") for _ in range(11)] == [True] * 10 + [False]
    assert is_let_in(bound, "", "")
    assert is_let_in(bound, address(1), "bob")


def test_names_that_are_made_up_are_forgotten() -> None:
    clock = FakeClock()
    bound = LoginBound(clock)
    for number in range(30_000):
        user = f"user{number}"
        bound.begin(address(number % 60_000), user)
        bound.succeeded(address(number % 60_000), user)
    kept = vars(bound)
    assert max(len(kept["_tries"]), len(kept["_proven"])) <= 10_000


def test_tries_that_are_refused_leave_nothing_and_push_out_nothing() -> None:
    """They cost nothing: one client would make room for guesses of all others, and fill the memory."""
    bound = LoginBound(FakeClock())
    for number in range(100):
        bound.begin(address(number), "bob")
        bound.begin("192.0.2.9", f"name{number}")
    before = len(vars(bound)["_tries"])
    assert not any(is_let_in(bound, "192.0.2.9", f"other{number}") for number in range(20_000))
    assert len(vars(bound)["_tries"]) == before
    bound.begin(address(200), "alice")
    assert not is_let_in(bound, address(201), "bob")


def test_one_client_cannot_guess_with_many_names() -> None:
    bound = LoginBound(FakeClock())
    for number in range(100):
        bound.begin("1.2.3.4", f"user{number}")
    with pytest.raises(RefusedError):
        bound.begin("1.2.3.4", "user100")


def test_a_password_fits_its_hash_alone() -> None:
    known = hashed_password("pässword")
    assert known.startswith(b"$2a$10$")
    assert is_password("pässword".encode(), known)
    assert not is_password(b"password", known)
    assert not is_password(b"", known)
    assert not is_password(b"x" * 100, known)
    assert not is_password(b"-", None)


@pytest.mark.parametrize(
    "stored",
    [
        b"no hash at all",
        b"$2b$" + b"x" * 56,
        b"$2a$99$" + b"a" * 53,
        b"$2b$10$" + b"!" * 53,
        b"$2b$03$" + b"a" * 53,
        b"$2b$31$" + b"a" * 53,  # it would be judged for a day
        b"$2y$10$" + b"a" * 53,
    ],
)
def test_what_only_looks_like_a_hash_fits_no_password(stored: bytes) -> None:
    """Another program may have stored it: then nobody logs in, and nothing fails."""
    assert not is_password(b"x", stored)
    assert not is_password(b"-", stored)


@pytest.mark.parametrize("password", ["", "x" * 73, "ä" * 37, "a\x00"])
def test_a_password_that_bcrypt_would_cut_is_refused(password: str) -> None:
    with pytest.raises(RefusedError) as caught:
        hashed_password(password)
    assert caught.value.status == 400


def test_rights_in_words_stand_in_the_originals_order() -> None:
    assert described_rights(ALL_RIGHTS) == (
        "can inject faults, can manage accounts, can modify inventory, can modify workloads, can perform repairs, "
        "can modify the simulated time"
    )
    assert described_rights(Rights()) == ""


def test_only_what_is_new_must_be_held() -> None:
    holder = Rights(can_step_time=True)
    both = Rights(can_step_time=True, can_inject_faults=True)
    assert rights_beyond(holder, both) == ["can inject faults"]
    assert rights_beyond(holder, both, had=Rights(can_inject_faults=True)) == []
    assert rights_beyond(Rights(), Rights(), had=ALL_RIGHTS) == []


def test_the_flag_of_an_old_record_counts_until_there_are_rights(chamber: CloudChamber) -> None:
    assert rights_of(User(can_manage_accounts=True)) == Rights(can_manage_accounts=True)
    assert rights_of(User(can_manage_accounts=True, rights=Rights())) == Rights()
