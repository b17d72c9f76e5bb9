"""Attacks: what each protocol that confines its callers is tried with, as two tenants and an auditor, over sockets."""
