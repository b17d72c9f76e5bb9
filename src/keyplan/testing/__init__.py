"""Shipped test kit: imported by tests only."""
