"""The command ``onelake``."""
