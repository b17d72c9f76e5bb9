"""Bytes in order: the contract, and the engines that keep it."""
