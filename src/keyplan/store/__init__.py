"""A layout on an engine: typed records, indexes, transactions."""
