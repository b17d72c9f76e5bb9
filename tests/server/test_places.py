"""How many of something there are at once: of one, of all, in many threads, and nothing kept of who has left."""

from collections.abc import Callable
from random import Random
from threading import Barrier, Thread

import pytest

from keyplan.server import Full, Places


def test_one_has_so_many_and_leaves_the_rest_to_others() -> None:
    places = Places(of_all=3, of_one=2)
    assert [places.take("ada") for _ in range(3)] == [None, None, Full.OF_ONE]
    assert [places.take("bob") for _ in range(2)] == [None, Full.OF_ALL]
    assert (places.number, places.taken_by("ada"), places.taken_by("bob")) == (3, 2, 1)
    assert places.take("ada") is Full.OF_ONE, "who has all of their own is not told of the others"
    places.leave("bob")
    assert places.take("eve") is None


@pytest.mark.parametrize("take", [Places.take, Places.enter])
def test_who_is_nobody_in_particular_is_bounded_as_all_are(take: Callable[[Places, str], Full | None]) -> None:
    places = Places(of_all=3, of_one=1)
    assert [take(places, "") for _ in range(4)] == [None, None, None, Full.OF_ALL]


def test_what_is_refused_is_counted_where_it_stays() -> None:
    places = Places(of_all=3, of_one=1)
    assert [places.enter("ada") for _ in range(3)] == [None, Full.OF_ONE, Full.OF_ONE]
    assert places.enter("bob") is Full.OF_ALL
    for _ in range(2):
        places.leave("ada")
    assert places.enter("ada") is Full.OF_ONE, "one of hers is there still"
    assert places.enter("eve") is Full.OF_ALL
    places.leave("ada")
    places.leave("ada")
    assert (places.taken_by("ada"), places.number) == (0, 2)


def test_a_place_is_given_back_however_a_block_ends() -> None:
    places = Places(of_all=1, of_one=1)
    told: list[Full] = []

    def refused(full: Full) -> Exception:
        told.append(full)
        return LookupError("no place")

    with pytest.raises(ZeroDivisionError), places.held("ada", refused):
        raise ZeroDivisionError
    with places.held("ada", refused):
        with pytest.raises(LookupError), places.held("ada", refused):
            raise AssertionError("there is no place")
        with pytest.raises(LookupError), places.held("bob", refused):
            raise AssertionError("there is no place")
    assert (told, places.number) == ([Full.OF_ONE, Full.OF_ALL], 0)


def test_who_has_left_is_forgotten() -> None:
    places = Places(of_all=5, of_one=1)
    for number in range(1_000):
        assert places.take(f"caller {number}") is None
        places.leave(f"caller {number}")
    assert len(vars(places)["_taken"]) == 0


def test_threads_have_no_more_than_there_are() -> None:
    places, ready, most = Places(of_all=6, of_one=2), Barrier(8), [0]

    def work(name: int) -> None:
        random = Random(name)
        ready.wait()
        for _ in range(2_000):
            who = random.choice("abcd")
            if places.take(who) is None:
                most[0] = max(most[0], places.number, 3 * places.taken_by(who))
                places.leave(who)

    threads = [Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 6
    assert (places.number, [places.taken_by(who) for who in "abcd"]) == (0, [0] * 4)
