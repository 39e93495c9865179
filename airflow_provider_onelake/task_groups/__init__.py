"""Task groups: a whole load as one collapsed step."""
