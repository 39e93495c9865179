"""Buffers: what a writer leaves behind for a commit to publish."""
