"""Any sequence of operations against a dictionary."""
