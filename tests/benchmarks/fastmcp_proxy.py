"""FastMCP's own proxy over the same configuration; runs where FastMCP is installed.

python fastmcp_proxy.py CONFIG [PORT]
"""

import importlib
import json
import os
import sys
from pathlib import Path

os.environ |= {
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "FASTMCP_SHOW_SERVER_BANNER": "false",
    "FASTMCP_LOG_LEVEL": "ERROR",
}
create_proxy = importlib.import_module("fastmcp.server").create_proxy  # no dependency, so no import statement

proxy = create_proxy(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), name="proxy")
if len(sys.argv) > 2:
    quiet = {"access_log": False, "log_level": "error"}
    proxy.run(transport="http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, uvicorn_config=quiet)
else:
    proxy.run(transport="stdio", show_banner=False)
