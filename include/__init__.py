"""What the example DAGs and make use: SQL, sample data, and the local stack."""
