"""Who imports what: no circles, no reaching into another package's modules, no module that nobody imports."""

import ast
from collections.abc import Iterator, Set
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from tests.tidy.public import listed_names
from tests.tidy.sources import Finding, Source


class Import(NamedTuple):
    """`from module import name`; an `import module` has no name."""

    module: str
    name: str
    line: int

    @property
    def targets(self) -> tuple[str, ...]:
        """The modules that it may name: `from a import b` is a, and a.b when that is a module."""
        return (self.module, f"{self.module}.{self.name}") if self.name else (self.module,)


def imports(source: Source) -> Iterator[Import]:
    """Every import, also inside functions and under TYPE_CHECKING."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (Import(node.module, alias.name, node.lineno) for alias in node.names)


def circles(sources: tuple[Source, ...]) -> Iterator[Finding]:
    """A circle of modules that import one another, also inside functions and under TYPE_CHECKING: one at a time.

    Why these, too: whoever reads one of the modules has to read the others.
    """
    lines: dict[str, dict[str, int]] = {}
    modules = {source.module: source for source in sources}
    for source in sources:
        reached = lines[source.module] = {}
        for found in imports(source):
            target = next((target for target in reversed(found.targets) if target in modules), source.module)
            if target != source.module:
                reached.setdefault(target, found.line)
    try:
        TopologicalSorter(lines).prepare()
    except CycleError as error:
        circle = list(reversed(error.args[1]))
        line = lines[circle[0]][circle[1]]
        yield Finding(modules[circle[0]].path, line, f"the circle {' -> '.join(circle)}", "a module below them")


def package_of(module: str) -> str:
    """The package whose `__init__` is its face: keyplan.codec, keyplan.apps.runm. Single files are their own."""
    parts = module.split(".")
    return ".".join(parts[:3] if parts[:2] == ["keyplan", "apps"] else parts[:2])


def reaches_inside(sources: tuple[Source, ...]) -> Iterator[Finding]:
    """Imports of another package's modules: what a package offers, its `__init__` lists."""
    modules = {source.module for source in sources}
    offers = {source.module: set(listed_names(source.tree) or ()) for source in sources}
    for source in sources:
        for found in imports(source):
            if package_of(found.module) == found.module and found.name in offers.get(found.module, ()):
                continue  # Why: keyplan.layout offers a function `lint` that is named like the module it comes from.
            reached = next((target for target in reversed(found.targets) if target in modules), "")
            package = package_of(reached)
            if reached.startswith("keyplan.") and reached != package and package != package_of(source.module):
                yield Finding(
                    source.path, found.line, f"import of {reached}, inside another package", f"what {package} offers"
                )


def orphans(sources: tuple[Source, ...], entry_points: Set[str], tests: tuple[Source, ...] = ()) -> Iterator[Finding]:
    """Modules that no other module imports, that are no entry point and that no text names (a registry's "package.module").

    Tests are the users of keyplan.testing; elsewhere a module that only its test imports has no use.
    """
    reached = set(entry_points)
    for source in sources:
        for found in imports(source):
            reached.update(target for target in found.targets if target != source.module)
        reached.update(
            node.value.partition(":")[0]
            for node in source.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("keyplan.")
        )
    for source in tests:
        for found in imports(source):
            reached.update(target for target in found.targets if target.startswith("keyplan.testing"))
    for source in sources:
        if source.path.endswith(("/__init__.py", "/__main__.py")) or source.module in reached:
            continue
        yield Finding(source.path, 1, f"nobody imports {source.module}", "it, or remove it")
