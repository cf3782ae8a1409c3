"""Compiled models: a graph with a plan for each low-bit layer, run by meaning or on a GPU, saved and loaded."""
