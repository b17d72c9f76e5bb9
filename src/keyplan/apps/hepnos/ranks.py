"""Pieces of work for the ranks of an MPI job, who all run the same program: rank 0 hands them out, and works as well.

A communicator is what mpi4py calls one; nothing of mpi4py is imported. What goes over the wire: a rank asks rank 0 for a piece,
one ahead of the one that it works on, and says whether it has failed; rank 0 answers each request with a piece, or None.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol, Self

from keyplan.apps.hepnos.pieces import Done, Piece
from keyplan.errors import InvalidInputError, KeyplanError, StoppedError

__all__ = ["Communicator", "agree", "through_ranks"]

_ROOT: Final = 0


class Communicator(Protocol):
    """What is needed of mpi4py's `MPI.Comm`."""

    def Get_rank(self) -> int: ...  # noqa: N802  # Why: MPI's names.
    def Get_size(self) -> int: ...  # noqa: N802
    def Dup(self) -> Self: ...  # noqa: N802
    def Free(self) -> None: ...  # noqa: N802
    def allgather(self, sendobj: Any) -> list[Any]: ...
    def send(self, obj: Any, dest: int) -> None: ...
    def recv(self) -> Any: ...
    def iprobe(self) -> bool: ...


def agree(comm: Communicator, agreement: object) -> None:
    """Raise InvalidInputError on every rank unless all of them were given the same. For all ranks together."""
    given = comm.allgather(agreement)
    if any(each != given[0] for each in given):
        rank = next(number for number, each in enumerate(given) if each != given[0])
        raise InvalidInputError(
            source="comm",
            problem=f"the ranks were given different data sets or options: rank 0 {given[0]}, rank {rank} {given[rank]}",
        )


def through_ranks(
    comm: Communicator, pieces: Callable[[], Iterator[Piece]], work: Callable[[Piece], Done]
) -> Generator[Done, None, None]:
    """Yield what this rank has done, until all pieces are done by some rank. For all ranks together.

    When a rank fails, no more pieces are handed out, and all ranks raise: it its own error, the others the first of those; so
    they do, StoppedError, when it has ended otherwise, or let go of the generator before its end.
    """
    # Why a communicator of its own: the caller's messages must not be taken for requests.
    own = comm.Dup()
    try:
        turn = _Root(own, pieces()) if own.Get_rank() == _ROOT else _Rank(own)
        told: KeyplanError | None = None
        worker = f"rank {own.Get_rank()}"
        try:
            while (piece := turn.next_piece()) is not None:
                yield work(piece)._replace(worker=worker)
        except BaseException as error:  # Why all: others wait for this rank, and take what it has left for done.
            told = _told(error, worker)
            raise
        finally:
            turn.stop()
            errors = own.allgather(told)
        for other in errors:
            if other is not None:
                raise other
    finally:
        own.Free()


def _told(error: BaseException, worker: str) -> KeyplanError:
    if isinstance(error, KeyplanError):
        return error
    how = "let go of its events" if isinstance(error, GeneratorExit) else f"ended with {type(error).__name__}"
    return StoppedError(problem=f"{worker} has {how} before all were done")


class _Root:
    """Rank 0: takes a piece for itself when nobody is waiting for one."""

    def __init__(self, comm: Communicator, pieces: Iterator[Piece]) -> None:
        self._comm = comm
        self._pieces = pieces
        self._waiting = comm.Get_size() - 1
        """The ranks that have not been told that there is nothing left."""

    def next_piece(self) -> Piece | None:
        while self._waiting and self._comm.iprobe():
            self._answer()
        piece = next(self._pieces, None)
        if piece is None:
            self.stop()
        return piece

    def stop(self) -> None:
        """Answer until every rank knows that there is nothing left."""
        self._pieces = iter(())
        while self._waiting:
            self._answer()

    def _answer(self) -> None:
        rank, has_failed = self._comm.recv()
        if has_failed:
            self._pieces = iter(())
        piece: Piece | None = None
        try:
            piece = next(self._pieces, None)
        finally:
            # Why also when the next cannot be read: who has asked waits for an answer.
            self._waiting -= piece is None
            self._comm.send(piece, dest=rank)


class _Rank:
    """Any other rank: has always asked for the next piece, until it is told that there is none."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._has_ended = False
        self._ask(has_failed=False)

    def next_piece(self) -> Piece | None:
        return self._receive(has_failed=False)

    def stop(self) -> None:
        """Say that it has failed, unless all is done, and take what is still on the way."""
        while not self._has_ended:
            self._receive(has_failed=True)

    def _receive(self, *, has_failed: bool) -> Piece | None:
        piece: Piece | None = self._comm.recv()
        if piece is None:
            self._has_ended = True
        else:
            self._ask(has_failed=has_failed)
        return piece

    def _ask(self, *, has_failed: bool) -> None:
        self._comm.send((self._comm.Get_rank(), has_failed), dest=_ROOT)
