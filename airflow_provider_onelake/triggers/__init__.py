"""Triggers: wait for commits without holding a worker."""
