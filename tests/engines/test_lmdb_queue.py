"""Group commit: threads that wait share a transaction, and each gets its own answer."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import lmdb
import pytest

from keyplan.engine import ALL_KEYS, Commit, KeyAbsent, Put, open_engine
from keyplan.engine.group_commit import CommitQueue, Ticket
from keyplan.engine.lmdb.write import WriteTransaction
from keyplan.errors import CommitConflictError, CommitOutcomeUnknownError, EngineError
from keyplan.testing.engine_suite.promise import eventually

Work = Callable[[None], object]


def queue_of(carry_out: Callable[[list[Ticket[Work]]], None]) -> CommitQueue[Work]:
    return CommitQueue(carry_out, outcome_unknown=lambda _, problem: CommitOutcomeUnknownError(problem=problem))


def test_work_that_arrives_while_a_batch_is_carried_out_is_the_next_batch() -> None:
    batches: list[list[object]] = []
    is_first_running, may_go_on = Event(), Event()

    def carry_out(batch: list[Ticket[Work]]) -> None:
        for ticket in batch:
            ticket.finish(ticket.work(None))
        batches.append([ticket.result for ticket in batch])
        if len(batches) == 1:
            is_first_running.set()
            assert may_go_on.wait(60)

    queue = queue_of(carry_out)
    results: list[int] = []
    threads = [Thread(target=lambda n=n: results.append(queue.run(lambda _: n))) for n in range(8)]
    threads[0].start()
    assert is_first_running.wait(60)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(queue._waiting) == 8)  # what waits is not told by public names
    may_go_on.set()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == list(range(8))
    assert [len(batch) for batch in batches] == [1, 7]


def test_an_interrupt_of_the_leader_is_its_own_and_the_others_learn_that_the_outcome_is_unknown() -> None:
    is_held, may_go = Event(), Event()
    batches: list[int] = []

    def carry_out(batch: list[Ticket[Work]]) -> None:
        batches.append(len(batch))
        if len(batches) == 1:
            is_held.set()
            assert may_go.wait(60)
            batch[0].finish(None)
        else:
            queue.under_way = batch
            raise KeyboardInterrupt

    queue = queue_of(carry_out)
    told: list[type[BaseException] | None] = []

    def run() -> None:
        try:
            queue.run(lambda _: None)
        except (KeyboardInterrupt, CommitOutcomeUnknownError) as error:
            told.append(type(error))
        else:
            told.append(None)

    threads = [Thread(target=run) for _ in range(3)]
    threads[0].start()
    assert is_held.wait(60)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(queue._waiting) == 3)  # what waits is not told by public names
    may_go.set()
    for thread in threads:
        thread.join(20)
    assert batches == [1, 2]
    assert sorted(told, key=str) == sorted([None, KeyboardInterrupt, CommitOutcomeUnknownError], key=str)

    with pytest.raises(KeyboardInterrupt):
        queue.run(lambda _: None)  # the queue is not stuck: this thread leads


def test_work_that_was_refused_in_an_attempt_that_failed_is_judged_anew(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        environment = engine._environment  # type: ignore[attr-defined]  # batches are not made by public names

        def fail_after_writing(target: WriteTransaction) -> None:
            target.commit(Commit((), (Put(b"a", b""),)))
            raise lmdb.DiskError("the pretended disk failed")

        bad = Ticket(fail_after_writing)
        claim = Ticket(lambda target: target.commit(Commit((KeyAbsent(b"a"),), (Put(b"a", b"1"),))))
        environment._carry_out([bad, claim])
        assert isinstance(bad.error, EngineError)
        assert claim.error is None
        assert claim.result == 1


def test_work_that_a_leader_had_not_made_lasting_when_it_was_interrupted_is_carried_out_by_the_next() -> None:
    is_held, may_go = Event(), Event()
    carried_out: list[object] = []

    def carry_out(batch: list[Ticket[Work]]) -> None:
        if not carried_out:
            carried_out.append(None)
            is_held.set()
            assert may_go.wait(60)
            raise KeyboardInterrupt
        for ticket in batch:
            ticket.finish(ticket.work(None))

    queue = queue_of(carry_out)
    told: list[object] = []

    def run(name: str) -> None:
        try:
            told.append(queue.run(lambda _: name))
        except KeyboardInterrupt:
            told.append("interrupted")

    threads = [Thread(target=run, args=(name,)) for name in ("first", "second", "third")]
    threads[0].start()
    assert is_held.wait(60)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: len(queue._waiting) == 3)  # what waits is not told by public names
    may_go.set()
    for thread in threads:
        thread.join(20)
    assert sorted(map(str, told)) == ["interrupted", "second", "third"]


def test_of_commits_in_one_batch_each_is_judged_after_those_before_it(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        outcomes: list[str] = []

        def claim() -> None:
            try:
                engine.commit(Commit((KeyAbsent(b"a"),), (Put(b"a", b""),)))
            except CommitConflictError:
                outcomes.append("conflict")
            else:
                outcomes.append("won")

        threads = [Thread(target=claim) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["conflict"] * 31 + ["won"]
        with engine.snapshot() as snapshot:
            assert snapshot.revision == 1


def test_threads_that_commit_at_once_share_transactions(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        environment = engine._environment  # type: ignore[attr-defined]  # the number of transactions is not public
        before = environment.lmdb.info()["last_txnid"]

        def write(name: int) -> None:
            for number in range(10):
                engine.commit(Commit((), (Put(b"%d/%d" % (name, number), b""),)))

        threads = [Thread(target=write, args=(name,)) for name in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with engine.snapshot() as snapshot:
            assert snapshot.revision == snapshot.count(ALL_KEYS) == 160
        assert environment.lmdb.info()["last_txnid"] - before < 160


def test_a_failure_of_the_file_is_tried_again_one_by_one_and_told_to_its_own_thread(tmp_path: Path) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        environment = engine._environment  # type: ignore[attr-defined]  # a failing disk cannot be had by public names

        def fail(_: object) -> None:
            raise lmdb.DiskError("no space left on the pretended disk")

        good, bad = Ticket(lambda target: target.commit(Commit((), (Put(b"a", b""),)))), Ticket(fail)
        environment._carry_out([bad, good])
        assert good.result == 1
        assert isinstance(bad.error, EngineError)
        assert "no space left" in str(bad.error)
        with engine.snapshot() as snapshot:
            assert [entry.key for entry in snapshot.scan(ALL_KEYS)] == [b"a"]


@pytest.mark.parametrize(
    ("failure", "told"),
    [(lmdb.DiskError("no space left on the pretended disk"), EngineError), (ZeroDivisionError(), ZeroDivisionError)],
    ids=["of the file", "of the work"],
)
def test_work_that_fails_behind_work_that_does_not_is_told_of_its_own_failure(
    tmp_path: Path, failure: Exception, told: type[Exception]
) -> None:
    with open_engine(f"lmdb:{tmp_path}") as engine:
        environment = engine._environment  # type: ignore[attr-defined]  # a failing disk cannot be had by public names

        def fail(_: object) -> None:
            raise failure

        good, bad = Ticket(lambda target: target.commit(Commit((), (Put(b"a", b""),)))), Ticket(fail)
        environment._carry_out([good, bad])
        assert good.result == 1
        assert type(bad.error) is told
