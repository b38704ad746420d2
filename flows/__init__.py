"""Prefect flows around the conversion: they schedule, and nothing else."""
