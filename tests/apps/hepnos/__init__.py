"""Tests of the HEPnOS application."""
