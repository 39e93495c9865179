"""DELETE, UPDATE, MERGE and TRUNCATE of ours beside everybody else, through every kind of bad luck, from a seed."""
