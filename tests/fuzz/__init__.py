"""Input that nobody meant: whatever it is, nothing but a KeyplanError comes of it, and soon."""
