"""The store: plan, records, lists, indexes, transactions, conflicts."""
