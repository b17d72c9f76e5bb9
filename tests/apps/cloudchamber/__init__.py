"""CloudChamber against its document: the acceptance cases, and what goes wrong in practice."""
