"""Layout and store for any ordered key-value engine."""
