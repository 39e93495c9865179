"""Operators: loads, statements, upkeep of tables, and what is asked of Fabric."""
