"""The settings file, keyplan.toml: which store, which layout, which parameters, when the command line does not say."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from keyplan.cli.files import read_text
from keyplan.errors import InvalidInputError

__all__ = ["SETTINGS_FILE", "Settings", "read_settings"]

SETTINGS_FILE: Final = "keyplan.toml"


@dataclass(frozen=True)
class Settings:
    """What the file says; empty where it says nothing."""

    store: str = ""
    layout: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_settings(path: Path | None) -> Settings:
    """Return the settings of a file, or of keyplan.toml in the working directory if there is one.

    Raises InvalidInputError for a file that cannot be read, and for a setting that is unknown or of the wrong type.
    """
    source = path or Path(SETTINGS_FILE)
    if path is None and not source.exists():
        return Settings()
    try:
        found = tomllib.loads(read_text(source))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(source=str(source), problem=f"not TOML: {error}") from error
    unknown = sorted(found.keys() - {"store", "layout", "parameters"})
    if unknown:
        problem = f"there is no setting {unknown[0]!r}; the settings are store, layout and parameters"
        raise InvalidInputError(source=str(source), problem=problem)
    return Settings(
        _text(source, "store", found.get("store", "")),
        _text(source, "layout", found.get("layout", "")),
        _texts(source, "parameters", found.get("parameters", {})),
    )


def _text(source: Path, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(source=str(source), problem=f"{name} is not a text")
    return value


def _texts(source: Path, name: str, values: object) -> dict[str, str]:
    if not isinstance(values, dict):
        raise InvalidInputError(source=str(source), problem=f"{name} is not a table of names and texts")
    return {str(key): _text(source, f"{name}.{key}", value) for key, value in values.items()}
