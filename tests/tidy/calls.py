"""What code may not call or name: clocks, chance, printing, native byte order, pickle; and broad excepts."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy.sizes import Function
from tests.tidy.sources import Finding, Source

CLOCK_OWNERS: Final = ("src/keyplan/engine/clock.py", "src/keyplan/testing")
PRINTERS: Final = ("src/keyplan/cli", "scripts", "examples", "tests")
OUTERMOST: Final = (
    "src/keyplan/cli/main.py",
    "src/keyplan/server/gate.py",
    "src/keyplan/server/grpc_listener.py",
    "src/keyplan/apps/hepnos/service_session.py",
    "src/keyplan/apps/patroni/broker_loop.py",
    "src/keyplan/apps/patroni/cluster_observer.py",
    "src/keyplan/apps/patroni/principals.py",
    "src/keyplan/apps/runm/call_pool.py",
    "src/keyplan/apps/runm/dispatch.py",
    "src/keyplan/store/lease.py",
)
"""The ends of a process and of a server, and threads for which nobody waits: they make calls of gRPC, renew leases, look for
operations, follow instances and clusters."""
CARRIERS: Final = (
    "src/keyplan/aio/greenlets.py",
    "src/keyplan/aio/threads.py",
    "src/keyplan/audit_log/log.py",
    "src/keyplan/engine/lmdb/environment.py",
    "src/keyplan/testing/killing.py",
    "src/keyplan/testing/schedules/running.py",
)
"""Whatever is raised on one side of an await is carried to the other, and raised there; what an actor or a job raises is
judged. What one thread's work raises in the thread that carries it out is carried back."""
CALLERS: Final = (
    "src/keyplan/codec/foreign_forms.py",
    "src/keyplan/codec/secrets.py",
    "src/keyplan/codec/serialized_forms.py",
    "src/keyplan/layout/entries.py",
    "src/keyplan/maintenance/migration/functions.py",
    "src/keyplan/maintenance/migration_files/folder.py",
)
"""They call what an application wrote: a record's class, an index function, a conversion. It may raise anything."""
CLOCK_AND_CHANCE: Final = ("time.time", "time.sleep", "time.monotonic", "time.perf_counter", "random.")
UNZONED: Final = (
    "datetime.datetime.utcnow",
    "datetime.datetime.utcfromtimestamp",
    "datetime.date.today",
    "datetime.datetime.today",
)
CODE_IN_DATA: Final = ("pickle", "marshal", "shelve")
ENGINES: Final = ("src/keyplan/engine", "src/keyplan/testing")
STRUCT_CALLS: Final = ("pack", "unpack", "pack_into", "unpack_from", "iter_unpack", "calcsize", "Struct")


def dotted_names(source: Source) -> Iterator[tuple[str, ast.expr]]:
    """Each name that is read, spelled from its module: after `from time import sleep as nap`, `nap` is time.sleep."""
    aliases: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            aliases.update(
                (alias.asname or alias.name.split(".")[0], (alias.asname and alias.name) or alias.name.split(".")[0])
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = _spelled(node, aliases)
            if name:
                yield name, node


def _spelled(node: ast.expr, aliases: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return aliases.get(node.id, "")
    if isinstance(node, ast.Attribute):
        owner = _spelled(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def clocks_and_chance(source: Source) -> Iterator[Finding]:
    """Time and randomness come in through a Clock, so that every failure repeats."""
    if source.within(*CLOCK_OWNERS):
        return
    for name, node in dotted_names(source):
        if name.startswith(CLOCK_AND_CHANCE):
            yield Finding(
                source.path, node.lineno, f"{name} outside engine/clock.py", "a Clock that the caller hands in"
            )


def waits(source: Source) -> Iterator[Finding]:
    """A sleep in a test is a guess; the few that must be say why on their line or the one before."""
    for name, node in dotted_names(source):
        if name == "time.sleep" and not any(
            "# Why:" in line for line in source.lines[max(0, node.lineno - 2) : node.lineno]
        ):
            yield Finding(source.path, node.lineno, "time.sleep as a wait", "an event or a fake clock, or say `# Why:`")


def prints(source: Source) -> Iterator[Finding]:
    """Only the command line talks to people."""
    if source.within(*PRINTERS) or (
        source.within("src/keyplan/apps") and source.path.endswith(("/cli.py", "/commands.py"))
    ):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield Finding(source.path, node.lineno, "print outside the command line", "a value that the caller prints")


def native_byte_order(source: Source) -> Iterator[Finding]:
    """What is stored must not depend on the machine: a struct format begins with `>` or `<`."""
    for node in source.nodes:
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function, first = node.func, node.args[0]
        name = (
            function.attr
            if isinstance(function, ast.Attribute)
            else function.id
            if isinstance(function, ast.Name)
            else ""
        )
        owner = (
            function.value.id if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) else ""
        )
        if name not in STRUCT_CALLS or (owner != "struct" and name != "Struct"):
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value[:1] not in {">", "<", "!"}:
            yield Finding(
                source.path, node.lineno, f"the native struct format {first.value!r}", "a format with > before it"
            )


def unzoned_times(source: Source) -> Iterator[Finding]:
    """A time without a zone means something else on the next machine."""
    for name, node in dotted_names(source):
        if name in UNZONED:
            yield Finding(source.path, node.lineno, f"{name} has no zone", "datetime.now(UTC)")
    for call in source.nodes:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "now":
            owner = call.func.value
            ends = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            if ends == "datetime" and not call.args and not call.keywords:
                yield Finding(source.path, call.lineno, "datetime.now() has no zone", "datetime.now(UTC)")


def code_in_data(source: Source) -> Iterator[Finding]:
    """Bytes from a store are never trusted to build objects."""
    for node in source.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            if name.split(".")[0] in CODE_IN_DATA:
                yield Finding(source.path, node.lineno, f"import of {name}", "msgspec")


def mutable_defaults(source: Source) -> Iterator[Finding]:
    """A default is made once and shared by every call."""
    for function in source.nodes:
        if not isinstance(function, Function):
            continue
        defaults = [*function.args.defaults, *(default for default in function.args.kw_defaults if default)]
        for default in defaults:
            is_made = (
                isinstance(default, ast.Call)
                and isinstance(default.func, ast.Name)
                and default.func.id in {"list", "dict", "set"}
            )
            if is_made or isinstance(default, ast.List | ast.Dict | ast.Set):
                yield Finding(source.path, default.lineno, f"{function.name} has a mutable default", "() or None")


def broad_excepts(source: Source) -> Iterator[Finding]:
    """Catching everything hides faults; allowed where it is raised again, and outermost: in the command line and the server.

    What an application's function raises may become an error of ours, raised from it.
    """
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        is_broad = any(
            kind is None or (isinstance(kind, ast.Name) and kind.id in {"Exception", "BaseException"}) for kind in kinds
        )
        last = node.body[-1]
        is_raised_again = isinstance(last, ast.Raise) and last.exc is None
        is_translated = isinstance(last, ast.Raise) and last.cause is not None and source.within(*CALLERS)
        if is_broad and not is_raised_again and not is_translated and not source.within(*OUTERMOST, *CARRIERS):
            yield Finding(
                source.path, node.lineno, "an except that catches everything", "the errors that can happen here"
            )


_UNREADABLE: Final = frozenset({"ValueError", "UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError"})


def half_caught_decoding(source: Source) -> Iterator[Finding]:
    """msgspec has errors of its own for most that cannot be read; bytes that are no UTF-8 and deep nesting raise Python's."""
    for node in source.nodes:
        if not isinstance(node, ast.Try):
            continue
        named = {
            (kind.attr if isinstance(kind, ast.Attribute) else kind.id if isinstance(kind, ast.Name) else "")
            for handler in node.handlers
            for kind in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])
        }
        calls = (call.func for part in node.body for call in ast.walk(part) if isinstance(call, ast.Call))
        decodes = any(
            (isinstance(call, ast.Attribute) and call.attr == "decode")
            or (isinstance(call, ast.Name) and call.id == "decode")
            for call in calls
        )
        is_whole = "RecursionError" in named and named & _UNREADABLE
        if decodes and named & {"MsgspecError", "DecodeError"} and not is_whole:
            words = "(msgspec.MsgspecError, ValueError, RecursionError)"
            yield Finding(source.path, node.handlers[0].lineno, "an except that some damaged bytes pass by", words)


def commits_without_epoch(source: Source) -> Iterator[Finding]:
    """A guard holds within the epoch in which it was read: a commit that has guards says which one that is.

    Not one that only asks for absence, in so many words: that names no revision.
    """
    if source.within(*ENGINES):
        return
    for node in source.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "Commit":
            continue
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        guards = node.args[0] if node.args else keywords.get("guards")
        names_epoch = len(node.args) > 2 or "epoch" in keywords
        if guards is not None and not names_epoch and not _asks_only_for_absence(guards):
            yield Finding(
                source.path, node.lineno, "a commit that has guards and no epoch", "that of the snapshot they come from"
            )


def _asks_only_for_absence(guards: ast.expr) -> bool:
    return isinstance(guards, ast.Tuple) and all(map(_is_of_absence, guards.elts))


def _is_of_absence(guard: ast.expr) -> bool:
    """True for `KeyAbsent(key)`, `RangeEmpty(keys)` and `*map(KeyAbsent, keys)`."""
    if isinstance(guard, ast.Starred):
        made = guard.value
        is_mapped = isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "map"
        return is_mapped and isinstance(made, ast.Call) and _is_absent_name(made.args[0])
    return isinstance(guard, ast.Call) and _is_absent_name(guard.func)


def _is_absent_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"KeyAbsent", "RangeEmpty"}
