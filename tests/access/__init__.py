"""Tests of keyplan.access."""
