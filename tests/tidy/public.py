"""What a module offers: a docstring, an `__all__` that is complete, a docstring on every public name."""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

from tests.tidy.sources import Finding, Source


def missing_docstrings(source: Source) -> Iterator[Finding]:
    """Files without a word on what they hold."""
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield Finding(source.path, 1, "no module docstring", "one to five lines: what is here, what is not")


def listed_names(tree: ast.Module) -> list[str] | None:
    """The names in `__all__`; None when there is none."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.List | ast.Tuple):
                return [
                    element.value
                    for element in value.elts
                    if isinstance(element, ast.Constant) and isinstance(element.value, str)
                ]
    return None


def incomplete_lists(source: Source) -> Iterator[Finding]:
    """A module without `__all__`, a package whose `__all__` leaves out what it imports, a name listed twice.

    Ruff sorts the lists and finds names in them that are not there.
    """
    listed = listed_names(source.tree)
    offered = dict(_offered(source))
    if listed is None:
        defines = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in source.tree.body
        )
        if defines or offered:
            yield Finding(source.path, 1, "no __all__ of string literals", "a sorted list of the public names")
        return
    for name, line in offered.items():
        if name not in listed:
            yield Finding(source.path, line, f"{name} is imported but not in __all__", "it there, or no import")
    for name in {name for name in listed if listed.count(name) > 1}:
        yield Finding(source.path, 1, f"{name} stands twice in __all__", "it once")


def _offered(source: Source) -> Iterator[tuple[str, int]]:
    """What a package's `__init__` imports from keyplan and does not use itself: its table of contents."""
    if not source.path.endswith("/__init__.py"):
        return
    used = {node.id for node in source.nodes if isinstance(node, ast.Name)}
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "keyplan":
            names = ((alias.asname or alias.name, node.lineno) for alias in node.names)
            yield from ((name, line) for name, line in names if not name.startswith("_") and name not in used)


def unlisted_offers(sources: tuple[Source, ...]) -> Iterator[Finding]:
    """What a package offers stands in the `__all__` of the module that it comes from."""
    listed = {source.module: listed_names(source.tree) or [] for source in sources}
    for source in sources:
        if not source.path.endswith("/__init__.py"):
            continue
        for node in source.tree.body:
            if not isinstance(node, ast.ImportFrom) or node.module not in listed:
                continue
            for alias in node.names:
                if alias.name not in listed[node.module] and f"{node.module}.{alias.name}" not in listed:
                    yield Finding(
                        source.path, node.lineno, f"{alias.name} is not in {node.module}'s __all__", "it there"
                    )


def misplaced_lazy_names(sources: tuple[Source, ...]) -> Iterator[Finding]:
    """Names that a package imports when they are first used: what checkers see is what is imported, and no name is a module."""
    modules = {source.module for source in sources}
    for source in sources:
        if not source.path.endswith("/__init__.py") or not any(_is_lazy(node) for node in source.tree.body):
            continue
        seen = {
            (alias.name, node.module)
            for block in source.tree.body
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        imported = set(_homes(source))
        for name, module in sorted(seen ^ imported, key=str):
            side = "for checkers alone" if (name, module) in seen else "for checkers not at all"
            yield Finding(source.path, 1, f"{name} of {module} is imported {side}", "it in both places")
        for name in sorted(name for name, _ in imported if f"{source.module}.{name}" in modules):
            yield Finding(source.path, 1, f"{name} is the name of a module, too", "another name for the module")


def _is_lazy(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "keyplan.lazy_names"


def _homes(source: Source) -> Iterator[tuple[str, str]]:
    for node in source.tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and "_MODULES" in ast.dump(node.target):
            for module, names in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(module, ast.Constant) and isinstance(module.value, str):
                    words = (each.value for each in ast.walk(names) if isinstance(each, ast.Constant))
                    yield from ((str(word), f"{source.module}.{module.value}") for word in words)


def undocumented_names(package: ModuleType, path: str) -> Iterator[Finding]:
    """Classes and functions that a package offers without saying what they promise."""
    for name in getattr(package, "__all__", ()):
        offered = getattr(package, name)
        if not inspect.isclass(offered) and not inspect.isroutine(offered):
            continue
        # Trap: a dataclass and a NamedTuple write themselves a docstring that only repeats the fields; a class inherits one.
        text = (vars(offered).get("__doc__") if inspect.isclass(offered) else offered.__doc__) or ""
        if not text.strip() or text.startswith(f"{offered.__name__}("):
            yield Finding(path, 1, f"{name} has no docstring", "the contract: what the signature cannot say")
