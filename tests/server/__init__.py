"""The server: what its shell promises, and what the key space registry answers over HTTP."""
