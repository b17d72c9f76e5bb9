"""`python -m benchmarks.frames_by_hand FOLDER`: what a careful programmer serves one LMDB file with, without any library.

One connection, frames of a length, a letter and a body: P puts keys of 40 bytes in one durable commit, L lists so many from
a key on, V puts values, G gets one, B sends all pairs from a key on. No names, no placement, no tokens, no limits, no log.
"""

import socket
import sys
from collections.abc import Iterator
from itertools import chain, islice
from struct import Struct, pack
from typing import Final

import lmdb
import numpy as np

__all__ = ["KEY_BYTES", "ask", "main", "pairs_from"]

KEY_BYTES: Final = 40
_HEAD: Final = Struct("<Ic")
_COUNT: Final = Struct("<I")
_MAP_BYTES: Final = 1 << 34
_NAME_BYTES: Final = KEY_BYTES + len(b"p#bytes")
_PAIR_BYTES: Final = _NAME_BYTES + 1_024
_TOGETHER: Final = 256
"""Pairs of a frame. Why: a processor's cache has them while they are joined and sent."""


def ask(wire: socket.socket, letter: bytes, body: bytes) -> bytes:
    """Send a frame, and return the body of the answer."""
    wire.sendall(_HEAD.pack(len(body), letter) + body)
    _, answer = _frame(wire)
    return answer


def pairs_from(wire: socket.socket, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield all pairs from a key on, which have keys of one length and values of one: taken apart as they come."""
    wire.sendall(_HEAD.pack(len(start), b"B") + start)
    while body := _frame(wire)[1]:
        (count,) = _COUNT.unpack_from(body)
        key_bytes, value_bytes = np.frombuffer(body, "<u4", 2, _COUNT.size).tolist()
        both = np.dtype([("key", f"V{key_bytes}"), ("value", f"V{value_bytes}")])
        yield from np.frombuffer(body, both, count, _COUNT.size * (1 + 2 * count)).tolist()


def _pieces_from(environment: lmdb.Environment, start: bytes) -> Iterator[bytes]:
    with environment.begin() as transaction:
        cursor = transaction.cursor()
        if not cursor.set_range(start):
            return
        found = chain.from_iterable(cursor.iternext())
        while piece := list(islice(found, 2 * _TOGETHER)):
            yield b"".join((pack(f"<{1 + len(piece)}I", len(piece) // 2, *map(len, piece)), *piece))


def _frame(wire: socket.socket) -> tuple[bytes, bytes]:
    length, letter = _HEAD.unpack(_exactly(wire, _HEAD.size))
    return letter, _exactly(wire, length)


def _exactly(wire: socket.socket, length: int) -> bytes:
    body = bytearray(length)
    view, at = memoryview(body), 0
    while at < length:
        taken = wire.recv_into(view[at:])
        if not taken:
            raise EOFError
        at += taken
    return bytes(body)


def _answer(environment: lmdb.Environment, letter: bytes, body: bytes) -> bytes:
    if letter == b"G":
        with environment.begin() as transaction:
            return transaction.get(body) or b""
    if letter == b"L":
        (limit,) = _COUNT.unpack_from(body)
        found: list[bytes] = []
        with environment.begin() as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(body[_COUNT.size :]):
                for key in cursor.iternext(values=False):
                    found.append(key)
                    if len(found) == limit:
                        break
        return b"".join(found)
    with environment.begin(write=True) as transaction:
        if letter == b"P":
            pairs = [(body[at : at + KEY_BYTES], b"") for at in range(0, len(body), KEY_BYTES)]
        else:
            pairs = [
                (body[at : at + _NAME_BYTES], body[at + _NAME_BYTES : at + _PAIR_BYTES])
                for at in range(0, len(body), _PAIR_BYTES)
            ]
        transaction.cursor().putmulti(pairs)
    return b""


def main(folder: str) -> None:
    """Serve a folder on a free port of loopback, whose number is printed, until the first connection ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    with lmdb.open(folder, map_size=_MAP_BYTES, lib_version=0) as environment:
        wire, _ = listener.accept()
        with wire:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    letter, body = _frame(wire)
                    if letter == b"B":
                        for piece in _pieces_from(environment, body):
                            wire.sendall(_HEAD.pack(len(piece), letter))
                            wire.sendall(piece)
                        wire.sendall(_HEAD.pack(0, letter))
                        continue
                    answer = _answer(environment, letter, body)
                    wire.sendall(_HEAD.pack(len(answer), letter) + answer)
            except EOFError:
                return


if __name__ == "__main__":
    main(sys.argv[1])
