"""A cluster on paper, and the work on its operations: what Patroni would write is written here, and PostgreSQL never runs."""

from collections.abc import Callable
from threading import Event

from keyplan import Secret
from keyplan.apps.patroni import (
    Broker,
    Claim,
    Credentials,
    InstanceState,
    Member,
    MemberKey,
    NodeKey,
    Operation,
    Step,
)
from keyplan.apps.patroni.broker_work import OperationWork
from keyplan.apps.patroni.catalog import BUILT_IN_CATALOG
from keyplan.apps.patroni.operation_progress import Waits
from keyplan.engine import SystemClock
from keyplan.store import Store, open_store

FOLLOWS = "streaming"


class PaperCluster:
    """A cluster as Patroni writes it: `b` leads on timeline 3, `a` was rewound or was not, `c` is new. No cell is alive."""

    def __init__(self) -> None:
        self.store: Store = open_store("memory:")
        self.broker = Broker(self.store)
        self.lease = self.store.lease(600, keep_alive=False)
        self.asked: list[str] = []
        self.on_asked: Callable[[], None] = lambda: None
        self.on_pause: Callable[[], None] = lambda: None
        self.clock = PaperClock()
        self.waits = Waits(step_seconds_max=0.1, look_seconds=0.01, switch_again_seconds=0.02)
        self.broker.instances.put("f1", InstanceState(instance_id="f1"))
        for node in ("a", "b", "c"):
            self.broker.nodes.put(NodeKey("f1", node), f"cell-{node}")
        self.lead("b", 3)
        self.follow("a", 3)
        self.follow("c", 3)

    def _put(self, name: str, member: Member) -> None:
        member.conn_url = Secret(f"postgres://{name}:5432/postgres")
        self.broker.members.put(MemberKey("f1", name), member, lease=self.lease)

    def lead(self, name: str, timeline: int) -> None:
        self.broker.leaders.put("f1", name, lease=self.lease)
        self._put(name, Member(role="primary", state="running", timeline=timeline))

    def follow(self, name: str, timeline: int, state: str | None = FOLLOWS) -> None:
        self._put(name, Member(role="replica", state="running", replication_state=state, timeline=timeline))

    def say(self, name: str, **fields: object) -> None:
        """Have a member's record say more."""
        member = self.broker.members.require(MemberKey("f1", name))
        member.unknown |= fields
        self.broker.members.put(MemberKey("f1", name), member, lease=self.lease)

    def switch_over(self, _member: Member | None, leader: str, _credentials: Credentials, _candidate: str = "") -> None:
        self.asked.append(leader)
        self.on_asked()

    def made(self, *steps: Step) -> Operation:
        """What becomes of an update of these steps, in which nothing is waited for that does not come at once."""
        return self.carried_out(Operation(id="o", kind="update", steps=list(steps)))

    def carried_out(self, operation: Operation) -> Operation:
        """What becomes of an operation, begun or gone on with, in the same way."""
        self.broker.operations.put("f1", operation)
        self.broker.claims.put("f1", Claim(broker="me", operation=operation.id), lease=self.lease)
        return OperationWork(
            self.store,
            "f1",
            operation.id,
            broker="me",
            catalog=BUILT_IN_CATALOG,
            stop=_Stop(self),
            clock=self.clock,
            waits=self.waits,
        ).run()

    def removed(self) -> list[str]:
        return sorted({"a", "b", "c"} - {key.node for key in self.broker.nodes.keys("f1")})


class PaperClock(SystemClock):
    """Stands still but for what is waited. Why: a busy machine is to end no wait before it has looked."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def monotonic(self) -> float:
        return self._seconds

    def pass_by(self, seconds: float) -> None:
        self._seconds += seconds


class _Stop(Event):
    """Never set; what happens while the work waits happens here."""

    def __init__(self, cluster: PaperCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def wait(self, timeout: float | None = None) -> bool:
        self._cluster.on_pause()
        self._cluster.clock.pass_by(timeout or 0.0)
        return False
