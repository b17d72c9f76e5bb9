"""Checks, repairs, explanations and index builds, on layouts of their own."""
