"""The rows of a table at a version, as Arrow record batches."""
