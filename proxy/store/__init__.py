"""Where scope state and records of runs are kept."""
