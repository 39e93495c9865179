"""How a job reaches Spark: one small interface, an implementation for each way in."""
