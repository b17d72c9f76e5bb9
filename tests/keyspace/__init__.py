"""Tests of keyplan.keyspace."""
