"""What a sealed secret costs: a record with one, written, read and revealed, beside the same record in clear.

Measured by the time that is computed, in short slices of which the fastest counts: nothing of it waits.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from math import inf
from time import thread_time
from typing import Final

import msgspec

import keyplan
from benchmarks.extent import Extent
from benchmarks.measure import Result, Work, of_rates
from keyplan import Layout, Secret, Table
from keyplan.secret_keys import KEY_BYTES, SecretKeys
from keyplan.store import Store

__all__ = ["measure"]

_SLICE: Final = 50
_SLICES: Final = 80
_RECORDS: Final = 1_000
_HASH: Final = "$2b$12$" + "abcdefghijklmnopqrstuv" + "0123456789ABCDEFGHIJKLMNOPQRSTU"
"""As long as the hash of a password is as a rule."""


class _Account(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...]
    password: Secret[str]


class _Accounts(Layout, root="/benchmark/"):
    accounts = Table("accounts/{name}", key=str, value=_Account)


def measure(extent: Extent) -> Iterator[Result]:
    """Put, get, and get and reveal: in memory, where the store does least beside it, and on LMDB."""
    keys = SecretKeys({"first": os.urandom(KEY_BYTES)}, "first")
    for engine in ("memory", "lmdb"):
        with ExitStack() as stack:
            sealed, clear = (
                stack.enter_context(keyplan.open(_url(extent, engine, name), secrets=secrets))
                for name, secrets in (("sealed", keys), ("clear", None))
            )
            for name, work in _WORKS.items():
                yield _compared(extent, f"{name}, {engine}: sealed", work(sealed), work(clear))


def _compared(extent: Extent, variant: str, subject: Work, comparator: Work) -> Result:
    rates: list[float] = []
    ratios: list[float] = []
    for _ in range(extent.rounds):
        own = other = inf
        for _ in range(max(2, extent.operations(_SLICES))):
            own, other = min(own, _seconds(subject)), min(other, _seconds(comparator))
        rates.append(1 / own)
        ratios.append(other / own)
    return of_rates(
        "secrets", variant, against="the same in clear", rates=rates, ratios=ratios, size=_RECORDS, aim=None
    )


def _seconds(work: Work) -> float:
    begun = thread_time()
    work(_SLICE)
    return (thread_time() - begun) / _SLICE


def _url(extent: Extent, engine: str, name: str) -> str:
    return "memory:" if engine == "memory" else f"lmdb:{extent.stands.folder}/secrets-{name}?durability=none"


def _account(number: int) -> _Account:
    return _Account(f"user{number:06d}", ("operators", "readers"), Secret(_HASH))


def _put(store: Store) -> Work:
    accounts, numbers = _Accounts(store).accounts, count()

    def work(operations: int) -> None:
        for _ in range(operations):
            account = _account(next(numbers) % _RECORDS)
            accounts.put(account.name, account)

    return work


def _reads(store: Store) -> Callable[[int], _Account]:
    accounts = _Accounts(store).accounts
    for number in range(_RECORDS):
        accounts.put(_account(number).name, _account(number))

    def read(number: int) -> _Account:
        return accounts.require(f"user{number % _RECORDS:06d}")

    return read


def _get(store: Store) -> Work:
    read = _reads(store)

    def work(operations: int) -> None:
        for number in range(operations):
            read(number)

    return work


def _get_and_reveal(store: Store) -> Work:
    read = _reads(store)

    def work(operations: int) -> None:
        for number in range(operations):
            read(number).password.reveal()

    return work


_WORKS: Final[dict[str, Callable[[Store], Work]]] = {"put": _put, "get": _get, "get and reveal": _get_and_reveal}
