"""Upkeep: compaction, vacuum with its guards, RESTORE, kept versions, symlink manifests, health."""
