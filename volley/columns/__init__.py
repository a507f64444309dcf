"""Runs steps and expressions on Arrow batches."""
