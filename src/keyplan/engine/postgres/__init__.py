"""The PostgreSQL engine: an ordered table of bytes with revisions, in a schema of a database; psycopg 3 is its driver.

Read `commit_sql.py` first: a commit as one statement. Then `commits.py`: when its outcome is known.
"""

from keyplan.engine.postgres.engine import PostgresEngine, open_postgres
from keyplan.engine.postgres.options import POSTGRES_PROFILE, PostgresOptions, options_of

__all__ = ["POSTGRES_PROFILE", "PostgresEngine", "PostgresOptions", "open_postgres", "options_of"]
