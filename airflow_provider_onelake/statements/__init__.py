"""DELETE, UPDATE, MERGE and ALTER: each is done once, to the version before."""
