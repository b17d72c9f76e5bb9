"""Conversations in .kpt files, and the test that holds them."""
