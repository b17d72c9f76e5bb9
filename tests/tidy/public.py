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


def _defined(tree: ast.Module, *, is_package: bool) -> Iterator[tuple[str, int]]:
    """Public functions and classes that the module makes; for a package's `__init__`, those it imports from keyplan."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif is_package and isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "keyplan":
            yield from ((alias.asname or alias.name, node.lineno) for alias in node.names)


def incomplete_lists(source: Source) -> Iterator[Finding]:
    """An `__all__` that leaves out a public name, or names one twice. Ruff sorts it, and finds names that are not there."""
    listed = listed_names(source.tree)
    is_package = source.path.endswith("/__init__.py")
    defined = [(name, line) for name, line in _defined(source.tree, is_package=is_package) if not name.startswith("_")]
    if listed is None:
        if defined:
            yield Finding(source.path, 1, "no __all__ of string literals", "a sorted list of the public names")
        return
    for name, line in defined:
        if name not in listed:
            yield Finding(source.path, line, f"{name} is public but not in __all__", f"_{name}, or list it")
    for name in {name for name in listed if listed.count(name) > 1}:
        yield Finding(source.path, 1, f"{name} stands twice in __all__", "it once")


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
