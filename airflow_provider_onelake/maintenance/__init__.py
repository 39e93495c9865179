"""Upkeep: compaction of small files, and vacuum with its guards."""
