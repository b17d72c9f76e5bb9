"""Guessing of tokens: slowed by where it comes from, in bounded memory, while others and who is known go on."""

import json

import httpx
import pytest

from keyplan.server import guessing
from keyplan.server.guessing import GUESSES_MAX, Guesses
from tests.servers.keyplan_server import KeyplanServer

RIGHT = "Bearer an-admin-token-of-a-test"
ALSO_RIGHT = "Bearer a-client-token-of-a-test"
TOKENS = {"KEYPLAN_ADMIN_TOKEN": RIGHT.partition(" ")[2], "KEYPLAN_CLIENT_TOKEN": ALSO_RIGHT.partition(" ")[2]}


class Hand:
    """A clock that stands still."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def guesses(hand: Hand) -> Guesses:
    return Guesses(hand)


def spend(guesses: Guesses, address: str) -> list[float]:
    return [guesses.wrong(address) for _ in range(GUESSES_MAX)]


def test_after_many_wrong_guesses_nobody_looks_at_the_next_one_until_some_seconds_have_passed(
    guesses: Guesses, hand: Hand
) -> None:
    delays = spend(guesses, "192.0.2.1")
    assert (delays[0], max(delays)) == (0.0, 1.0)
    assert guesses.seconds_until("192.0.2.1", b"another") == 3.0
    hand.seconds = 3.1
    assert guesses.seconds_until("192.0.2.1", b"another") == 0.0
    guesses.wrong("192.0.2.1")
    assert guesses.seconds_until("192.0.2.1", b"another") > 0


def test_other_addresses_and_tokens_that_were_right_from_there_are_not_held_up(guesses: Guesses) -> None:
    guesses.right("192.0.2.1", b"right")
    spend(guesses, "192.0.2.1")
    assert guesses.seconds_until("192.0.2.1", b"right") == 0.0
    assert guesses.seconds_until("192.0.2.1", b"also right, and not seen from there") > 0
    assert guesses.seconds_until("192.0.2.2", b"anything") == 0.0


def test_the_addresses_of_one_ipv6_network_are_one(guesses: Guesses) -> None:
    spend(guesses, "2001:db8::1")
    assert guesses.seconds_until("2001:db8::2:3", b"x") > 0
    assert guesses.seconds_until("2001:db8:0:1::1", b"x") == 0.0
    spend(guesses, "::ffff:192.0.2.7")
    assert guesses.seconds_until("192.0.2.7", b"x") > 0


@pytest.mark.parametrize("other", ["127.0.0.2", "127.255.255.254", "::1", "::ffff:127.0.3.1"])
def test_the_addresses_within_this_machine_are_one(guesses: Guesses, other: str) -> None:
    spend(guesses, "127.0.0.1")
    assert guesses.seconds_until(other, b"x") > 0


def test_what_is_remembered_is_bounded_and_what_was_used_longest_ago_is_forgotten(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guessing, "_ADDRESSES_MAX", 2)
    monkeypatch.setattr(guessing, "_RIGHT_MAX", 2)
    guesses = Guesses(hand)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        guesses.right(address, b"right")
        spend(guesses, address)
    assert [guesses.seconds_until(f"192.0.2.{last}", b"x") > 0 for last in (1, 2, 3)] == [False, True, True]
    spend(guesses, "192.0.2.1")
    assert guesses.seconds_until("192.0.2.1", b"right") > 0
    guesses.right("192.0.2.2", b"right")
    guesses.right("192.0.2.1", b"another")
    assert [guesses.seconds_until(f"192.0.2.{last}", b"right") > 0 for last in (2, 3)] == [False, True]


@pytest.mark.slow
def test_a_flood_of_wrong_tokens_from_one_address_locks_out_neither_others_nor_who_was_known_there() -> None:
    with KeyplanServer("memory:", "--app", "etcd-v3", "--trusted-proxy", "127.0.0.1", environment=TOKENS) as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:

            def ask(token: str, address: str) -> httpx.Response:
                return client.get("/keyspaces", headers={"Authorization": token, "X-Forwarded-For": address})

            assert ask(RIGHT, "192.0.2.1").status_code == 200
            # Why until and not at once: an address gets a guess back every few seconds, and a busy machine takes them.
            wrong = (ask(f"Bearer wrong-{number:016}", "192.0.2.1") for number in range(500))
            assert next(wrong).status_code == 401
            refused = next(answer for answer in wrong if answer.status_code != 401)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_guesses")
            assert int(refused.headers["retry-after"]) > 0
            assert ask(RIGHT, "192.0.2.1").status_code == 200
            assert ask(ALSO_RIGHT, "192.0.2.2").status_code not in {401, 429}
            passwords = (
                client.post(
                    "/v3/auth/authenticate",
                    json={"name": "root", "password": f"wrong-{number:016}"},
                    headers={"X-Forwarded-For": "192.0.2.1"},
                ).json()["message"]
                for number in range(500)
            )
            assert "etcdserver: too many requests" in passwords
        lines = [json.loads(line) for line in server.log.splitlines()]
    reasons = {
        line["reason"] for line in lines if line["message"] == "request refused" and line.get("status") in {401, 429}
    }
    assert reasons == {"unauthorized", "too_many_guesses"}
    assert not [line for line in lines if "wrong-" in json.dumps(line)]
