"""Pure: what keys mean."""
