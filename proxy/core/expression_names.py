"""What expressions can read of the scope that they are evaluated for."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from proxy.core.inventory import Json
from proxy.core.scope import ScopeId


def names_for(scope: ScopeId, client: str, version: str, heap: Json, env: Mapping[str, str]) -> dict[str, Any]:
    """The names `heap`, `scope` and `env`; `client` and `version` are what the client calls itself.

    The scope's id is the same in every run, and tells nothing: that of a session is as good as a key.
    """
    return {
        "heap": heap,
        "scope": {
            "id": hashlib.sha256(json.dumps(scope).encode()).hexdigest()[:32],
            "namespace": scope.name if scope.kind == "namespace" else None,
            "principal": scope.principal,
            "client": {"name": client, "version": version},
        },
        "env": env,
    }
