"""What docker-compose.yaml needs: images, Spark's settings, and the commands that are not somebody else's."""
