"""Reading the configuration file."""
