"""Lives of a registry, made by Hypothesis: what anybody may do to key spaces, one act after another."""

from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from keyplan.engine import Engine
from keyplan.errors import KeyplanError
from keyplan.files import new_file
from keyplan.keyspace import Founding, KeySpaces, KeySpaceStore, Sweeper, open_key_space
from keyplan.maintenance import back_up_key_spaces
from keyplan.testing.faults import FakeClock
from tests.keyspace.stores import Item, Shop, put_raw

__all__ = ["ACTS", "NAMES", "World", "backed_up"]

NAMES = ("a", "b", "c")


class World:
    """A store with a registry, clients that have key spaces open, and a clock."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.engine = engine
        self.clock = clock
        self.registry = KeySpaces(engine, clock=clock, founding=Founding(profile="none", skip_printable=False))
        self.handles: list[KeySpaceStore] = []

    def do(self, act: str, name: str, number: int) -> None:
        registry = self.registry
        acts: dict[str, Callable[[], object]] = {
            "create": lambda: registry.create(name, f"app{number % 2}", description=f"{number}"),
            "adopt": lambda: registry.create(name, "app0", prefix=b"/x/".hex(), allow_legacy_prefix=True),
            "delete": lambda: registry.delete(name),
            "sweep": lambda: Sweeper(registry).sweep(name),
            "undelete": lambda: registry.undelete(name),
            "disable": lambda: registry.disable(name),
            "enable": lambda: registry.enable(name),
            "describe": lambda: registry.update(name, f"described {number}"),
            "quota": lambda: registry.set_quota(name, keys=100 + number),
            "protect": lambda: registry.configure({"protected": [name] if number % 2 else []}),
            "reserve": lambda: registry.configure({"reservations": [f"7{number:x}"]}),
            "api": lambda: registry.configure({"keyspace-api-enabled": bool(number % 2)}),
            "never": lambda: registry.configure({"reuse-cooldown-seconds": None if number % 2 else 0}),
            "litter": lambda: put_raw(self.engine, bytes([1 + number]) + b"litter"),
            "wait": lambda: self.clock.advance(40.0),
            "overwrite": lambda: registry.begin_overwrite(name),
            "open": lambda: self.open(name),
            "write": lambda: self.write(name, number),
        }
        try:
            acts[act]()
        except KeyplanError:
            return  # what the registry refuses is not done

    def open(self, name: str) -> None:
        application = self.registry.get(name).application
        self.handles.append(open_key_space(self.engine, name, application, session_seconds=None, clock=self.clock))

    def write(self, name: str, number: int) -> None:
        application = self.registry.get(name).application
        with open_key_space(self.engine, name, application, session_seconds=None, clock=self.clock) as store:
            Shop(store).items.put(f"item{number}", Item(str(number)))


RARE = ("adopt", "undelete", "disable", "enable", "describe", "quota", "protect", "reserve", "api", "never", "litter")
OFTEN = ("create", "create", "delete", "sweep", "wait", "overwrite", "open", "write")
ACTS = st.tuples(st.sampled_from([*RARE, *OFTEN, *OFTEN]), st.sampled_from(NAMES), st.integers(0, 7))


def backed_up(engine: Engine, path: Path, name: str | None = None) -> Path:
    with new_file(path) as file:
        back_up_key_spaces(engine, file, name=name)
    return path
