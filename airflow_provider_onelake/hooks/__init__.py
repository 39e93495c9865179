"""Connections: how a task finds its lakehouse and its Spark."""
