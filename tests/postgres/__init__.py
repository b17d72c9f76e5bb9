"""The PostgreSQL engine beside its conformance: options, access, faults, figures of round trips, stores on it."""
