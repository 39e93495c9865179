"""Tables as the code of commit 2223e7c8 left them, and the DAGs and runs that they came from."""
