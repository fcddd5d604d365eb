"""An upstream for tests over stdio, whose every answer stands in a file, so that any shape can be sent in both eras.

`--answers FILE` is JSON that is read anew for each request: `{"capabilities": …, "answers": {KEY: RESULT}}`, which may
have `instructions`. A request
goes by `METHOD VALUE`, else by `METHOD`, where VALUE is its `cursor`, `uri` or `name`; a result `{"error": …}` is an
error, one that has a `notify` sends that notification first. Each message that comes becomes one JSON line in the file
given by `--log`.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KEYS = ("cursor", "uri", "name")
EMPTY: Mapping[str, Any] = {
    "ping": {},
    "tools/list": {"tools": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
}
"""What is answered where the file says nothing."""


def send(message: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def outcome(script: Mapping[str, Any], name: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The result or error of a request."""
    own = {"instructions": script["instructions"]} if "instructions" in script else {}
    told = {"capabilities": script["capabilities"], "serverInfo": {"name": name, "version": "1"}, **own}
    if method == "initialize":
        return {"result": {"protocolVersion": HANDSHAKE, **told}}
    if method == "server/discover":
        return {"result": {"resultType": "complete", "supportedVersions": [MODERN], **told}}
    answers = script["answers"]
    keys = [f"{method} {params[key]}" for key in KEYS if key in params]
    found = next((answers[key] for key in (*keys, method) if key in answers), EMPTY.get(method))
    if found is None:
        return {"error": {"code": -32602, "message": f"{name} has nothing for {method}"}}
    if "error" in found:
        return {"error": found["error"]}
    if "notify" in found:
        send(found["notify"])
        found = {key: value for key, value in found.items() if key != "notify"}
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    return {"result": {"resultType": "complete", **found} if modern else found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True, help="where every message is written down")
    parser.add_argument("--name", default="scripted")
    parser.add_argument("--until", type=Path, help="do nothing before this file exists")
    arguments = parser.parse_args()
    while arguments.until is not None and not arguments.until.exists():
        time.sleep(0.01)  # another process makes the file
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        with arguments.log.open("a", encoding="utf-8") as log:
            log.write(json.dumps({"method": method, "params": params, "id": message.get("id")}) + "\n")
        if "id" not in message:
            continue
        if method == "subscriptions/listen":  # which is open until it is cancelled
            acknowledged = {"_meta": {SUBSCRIPTION: message["id"]}, "notifications": params["notifications"]}
            send({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
            continue
        script = json.loads(arguments.answers.read_text(encoding="utf-8"))
        send({"id": message["id"], **outcome(script, arguments.name, method, params)})


if __name__ == "__main__":
    main()
