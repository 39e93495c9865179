"""Operators: stage a writer's rows, and settle a load's writers."""
