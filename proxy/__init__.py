"""A Model Context Protocol proxy: clients see the tools of the skills that are active for them."""

__version__ = "0.1.0"
