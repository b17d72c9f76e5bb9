"""Concurrent clients on any engine under faults, and the check of what they recorded. `run` is the long form."""
