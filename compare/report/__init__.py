"""Screens and pages: pure functions of a result."""
