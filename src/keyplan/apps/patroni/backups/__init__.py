"""Copies of clusters' databases, and of their write-ahead log as it is written, by pgBackRest beside PostgreSQL.

records.py says what is kept of them; archive.py how a node is told; node_tasks.py what a cell does on a node; steps.py and
plans.py what the broker does. Programs of the site's own are `site_callbacks.py`, beside this package.
"""
