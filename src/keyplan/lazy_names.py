"""Public names of a package that are imported when they are first used: what a command does not need costs it nothing."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that offers names of its modules: it imports a name's module, and keeps the name.

    Trap: a name that is a module of the package, too, would be that module as soon as anybody has imported it.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def imported(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return imported
