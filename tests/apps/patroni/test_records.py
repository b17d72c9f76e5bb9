"""Records that Patroni writes too: nothing of theirs is lost, and no password is shown."""

import json

import pytest

from keyplan import Secret
from keyplan.apps.patroni import Credentials, Failover, FailoverForm, Member, OpenJson, Sync, address_of
from keyplan.errors import CorruptionError, InvalidRecordError

MEMBERS = OpenJson(Member)


def test_fields_that_the_record_does_not_know_survive_a_change() -> None:
    raw = b'{"role":"replica","state":"running","replay_lsn":53417672,"tags":{"nofailover":true},"xlog_location":1}'
    member = MEMBERS.decode(raw)
    member.state = "stopped"
    assert json.loads(MEMBERS.encode(member)) == {
        "role": "replica",
        "state": "stopped",
        "replay_lsn": 53417672,
        "tags": {"nofailover": True},
        "xlog_location": 1,
    }


def test_a_field_named_unknown_is_kept_like_any_other() -> None:
    member = MEMBERS.decode(b'{"role":"replica","unknown":{"role":"x"}}')
    assert (member.role, member.unknown) == ("replica", {"unknown": {"role": "x"}})
    assert json.loads(MEMBERS.encode(member)) == {"role": "replica", "unknown": {"role": "x"}}


def test_null_is_read_as_an_absent_field() -> None:
    assert OpenJson(Sync).decode(b'{"leader":"n1","quorum":0,"sync_standby":null}') == Sync(leader="n1", quorum=0)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"role":1}', b'"\xff"', b"null"])
def test_what_is_no_json_of_the_record_is_damage(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        MEMBERS.decode(raw)


def test_an_unknown_field_does_not_replace_a_declared_one() -> None:
    with pytest.raises(InvalidRecordError):
        MEMBERS.encode(Member(role="replica", unknown={"role": "primary"}))


def test_a_field_of_the_wrong_type_is_not_written() -> None:
    with pytest.raises(InvalidRecordError):
        MEMBERS.encode(Member(role=1))  # type: ignore[arg-type]  # Why: that is what is tested.


def test_a_record_of_another_class_is_not_written() -> None:
    with pytest.raises(InvalidRecordError):
        MEMBERS.encode(Sync())  # type: ignore[arg-type]  # Why: that is what is tested.


@pytest.mark.parametrize(
    ("role", "is_primary"),
    [("master", True), ("primary", True), ("replica", False), ("standby_leader", False), ("uninitialized", False)],
)
def test_old_and_new_names_of_the_primary_are_one_role(role: str, *, is_primary: bool) -> None:
    assert Member(role=role).is_primary is is_primary


def test_printing_a_member_shows_its_address_and_no_password() -> None:
    shown = repr(Member(role="master", conn_url=Secret("postgres://replicator:secret@10.244.21.8:32768/postgres")))
    assert "10.244.21.8:32768" in shown
    assert "secret" not in shown


def test_printing_credentials_shows_no_password() -> None:
    assert (
        repr(Credentials(username="pgadmin", password=Secret("secret")))
        == "Credentials(username='pgadmin', password=***)"
    )


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgres://replicator:replicator@10.244.21.8:32768/postgres", "10.244.21.8:32768"),
        ("postgres://127.0.0.1:25432/postgres", "127.0.0.1:25432"),
        ("postgresql://db.example.com/postgres", "db.example.com:5432"),
        ("postgres://u:p%40ss@[::1]:5433/postgres", "[::1]:5433"),
        ("postgres://u:p@ss@h:1/postgres", "h:1"),
        ("postgres://[::1/postgres", None),
        ("postgres://h:99999/postgres", None),
        (f"postgres://{'h' * 249}:65535/postgres", f"{'h' * 249}:65535"),
        (f"postgres://{'h' * 250}:1/postgres", None),
        ("postgres://h h:1/postgres", None),
        ("postgres://h:/postgres", None),
        ("not a url", None),
        (None, None),
    ],
)
def test_the_address_is_what_a_connection_url_names(url: str | None, address: str | None) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    ("raw", "failover"),
    [
        (b"{}", Failover()),
        (b"", Failover()),
        (b"n1:n2", Failover(leader="n1", member="n2")),
        (b":n2", Failover(member="n2")),
        (
            b'{"leader":"n1","member":"n2","scheduled_at":"2027-01-01T00:00:00+00:00"}',
            Failover(leader="n1", member="n2", scheduled_at="2027-01-01T00:00:00+00:00"),
        ),
    ],
)
def test_a_failover_is_read_in_the_old_form_and_the_new(raw: bytes, failover: Failover) -> None:
    assert FailoverForm().decode(raw) == failover


def test_a_failover_is_written_as_json() -> None:
    assert FailoverForm().encode(Failover()) == b"{}"
    assert FailoverForm().encode(Failover(leader="n1")) == b'{"leader":"n1"}'


@pytest.mark.parametrize("raw", [b"n1", b"\xff:n", b'{"leader":1}'])
def test_another_failover_is_damage(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        FailoverForm().decode(raw)
