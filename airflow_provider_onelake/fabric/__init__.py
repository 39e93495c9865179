"""Fabric's REST, Power BI's and Livy's: one client, and what is asked by it."""
