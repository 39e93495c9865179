"""Sensors: gates in front of what reads a table."""
