"""Spark by Livy: a batch for every job, on Fabric's Spark or on any Livy server."""
