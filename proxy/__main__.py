"""`python -m proxy` is the same program as `mcp-skill-proxy`."""

import sys

from proxy.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
