"""`python -m benchmarks.frames_by_hand FOLDER`: what a careful programmer serves one LMDB file with, without any library.

One connection, frames of a length, a letter and a body: P puts keys of 40 bytes in one durable commit, L lists so many from
a key on, V puts a value, G gets one. No names, no placement, no tokens, no limits, no log.
"""

import socket
import sys
from struct import Struct
from typing import Final

import lmdb

__all__ = ["KEY_BYTES", "ask", "main"]

KEY_BYTES: Final = 40
_HEAD: Final = Struct("<Ic")
_COUNT: Final = Struct("<I")
_MAP_BYTES: Final = 1 << 34


def ask(wire: socket.socket, letter: bytes, body: bytes) -> bytes:
    """Send a frame, and return the body of the answer."""
    wire.sendall(_HEAD.pack(len(body), letter) + body)
    _, answer = _frame(wire)
    return answer


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
            pairs = [(body[: KEY_BYTES + 7], body[KEY_BYTES + 7 :])]
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
                    answer = _answer(environment, letter, body)
                    wire.sendall(_HEAD.pack(len(answer), letter) + answer)
            except EOFError:
                return


if __name__ == "__main__":
    main(sys.argv[1])
