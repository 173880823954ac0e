"""The presets of kit bench: each makes one of the tables that people compare clusters by."""
