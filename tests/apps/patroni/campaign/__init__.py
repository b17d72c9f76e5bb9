"""The long campaign: clusters under faults; what was acknowledged is looked for afterwards. See scripts/patroni-campaign."""
