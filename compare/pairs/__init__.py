"""The pairs: one file an operation, each defining PAIR."""
