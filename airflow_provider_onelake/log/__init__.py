"""The Delta log: its actions, its commits in order, and the snapshot they add up to."""
