"""Numbers that callers hand in: whole ones, where revisions, limits and ids are asked for. True and 5.0 are none."""

from keyplan.errors import InvalidInputError

__all__ = ["check_limit", "check_whole"]


def check_whole(value: object, source: str) -> None:
    """Raise InvalidInputError unless `value` is an int and no bool. Why: True would be stored, or compared, as 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInputError(source=source, problem=f"must be a whole number, not a {type(value).__name__}")


def check_limit(limit: int | None) -> None:
    """Raise InvalidInputError for a limit that is no number of records."""
    if limit is not None:
        check_whole(limit, "limit")
        if limit < 0:
            raise InvalidInputError(source="limit", problem=f"a list cannot have {limit} records")
