"""Mutants: small changes of one module, by chance, of which each must make a test fail."""
