"""Our style as tests. A check is a pure function from sources to findings; `test_tidy.py` runs them on the repository."""
