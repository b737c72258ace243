"""Figures, tables and statistics from what runs have left. Nothing here runs anything."""
