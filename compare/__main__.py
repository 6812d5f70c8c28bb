"""`python -m compare`."""

from compare.cli import entry

entry()
