"""Where scope state is kept."""
