"""What a driver is told by its environment and arguments."""

import json
import os
import sys

COMMAND: list[str] = json.loads(os.environ["MCP_COMMAND"])
"""The proxy as a program on stdio; empty over HTTP."""
URL = os.environ["MCP_URL"]
"""The proxy's address over HTTP; empty on stdio."""
MODEL = f"{os.environ['MODEL_URL']}/v1"
"""The model's address for the chat completions API."""
PROMPTS = sys.argv[1:]
