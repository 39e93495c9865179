"""What runs on Spark. Imports pyspark and the standard library only, so that it can be shipped as one zip."""
