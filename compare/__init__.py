"""The workbench: one operation, two languages, the same input bits, one card."""

__version__ = "0.1.0"
