"""What a table's definition becomes: creating a table, and adding columns to one."""
