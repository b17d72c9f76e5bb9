"""Engines: each by the conformance suite, and what is particular to it."""
