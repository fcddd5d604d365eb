"""How each command line client is installed, configured in an empty home, and started with a prompt."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conversation import Json
from install import Package
from processes import Word

TRANSPORTS = ("stdio", "mcp", "namespace")
OVER_HTTP = ("mcp", "namespace")


@dataclass(frozen=True)
class Place:
    """Where a client runs, and what it is pointed at."""

    home: Path
    model: str
    """The model's address, without a path."""
    command: Sequence[str]
    """The proxy as a program on stdio; empty over HTTP."""
    url: str
    """The proxy's address over HTTP; empty on stdio."""
    program: Callable[[str], Path]
    """A program of the client's package, by name."""

    @property
    def stdio(self) -> Json:
        """The entry for a server on stdio as most clients have it."""
        return {"command": self.command[0], "args": list(self.command[1:])}

    def entry(self, **http: object) -> Json:
        """The entry for the proxy; `http` is what it is over HTTP."""
        return http if self.url else self.stdio

    def write(self, path: str, content: str | Json) -> Path:
        """Write a file in the home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
        return file


@dataclass(frozen=True)
class Launch:
    """How to start a configured client: the command, which the prompts are appended to, and its environment."""

    command: Sequence[Word]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """A client as a row of the table."""

    key: str
    """What `--only` names."""
    title: str
    package: Package
    launch: Callable[[Place], Launch]
    transports: tuple[str, ...] = TRANSPORTS
    turns: int = 1
    """How many of the user's turns it plays in one process."""
    session_per_call: bool = False
    """Whether it opens a session for each call, so that the proxy can only know it by its namespace."""


def _npm(*specs: str, folder: str) -> Package:
    return Package("npm", specs, f"npm/{folder}")


CLAUDE_CODE = _npm("@anthropic-ai/claude-code", folder="claude-code")
CODEX = _npm("@openai/codex", folder="codex")
QWEN_CODE = _npm("@qwen-code/qwen-code", folder="qwen-code")


def _claude_code(place: Place, **more: object) -> Launch:
    server = place.entry(type="http", url=place.url) | more
    config = place.write("mcp.json", {"mcpServers": {"skills": server}})
    environment = {
        "ANTHROPIC_BASE_URL": place.model,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    allowed = ("--strict-mcp-config", "--allowedTools", "mcp__skills")
    return Launch([place.program("claude"), "--mcp-config", config, *allowed, "-p"], environment)


def _codex(place: Place, **more: bool) -> Launch:
    server = {"url": place.url} if place.url else place.stdio
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**server, **more}.items()]  # JSON's values are TOML's
    config = f"""
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{place.model}/v1"
wire_api = "responses"
env_key = "DUMMY_KEY"
[mcp_servers.skills]
"""
    place.write(".codex/config.toml", config + "\n".join(lines) + "\n")
    options = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return Launch([place.program("codex"), "exec", *options], {"DUMMY_KEY": "dummy"})


def _quiet_settings(place: Place, authentication: str, **more: object) -> Json:
    """The settings of Gemini CLI, and of Qwen Code, which comes from it."""
    return {
        "mcpServers": {"skills": place.entry(httpUrl=place.url) | {"trust": True} | more},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": authentication}},
        "telemetry": {"enabled": False},
    }


def _gemini_cli(place: Place) -> Launch:
    place.write(".gemini/settings.json", _quiet_settings(place, "gemini-api-key"))
    environment = {
        "GEMINI_API_KEY": "dummy",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GOOGLE_GEMINI_BASE_URL": place.model,
    }
    return Launch([place.program("gemini"), "--yolo", "-m", "gemini-2.5-pro", "-p"], environment)


def _qwen_code(place: Place, **more: object) -> Launch:
    place.write(".qwen/settings.json", _quiet_settings(place, "openai", **more))
    environment = {
        "OPENAI_API_KEY": "dummy",
        "OPENAI_BASE_URL": f"{place.model}/v1",
        "OPENAI_MODEL": "scripted",
    }
    return Launch([place.program("qwen"), "-y", "-p"], environment)


def _opencode_config(place: Place) -> Json:
    server = {"type": "remote", "url": place.url} if place.url else {"type": "local", "command": list(place.command)}
    model = {"name": "scripted", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{place.model}/v1", "apiKey": "dummy"},
        "models": {"scripted": model},
    }
    return {
        "autoupdate": False,
        "mcp": {"skills": {**server, "enabled": True}},
        "model": "scripted/scripted",
        "permission": "allow",
        "provider": {"scripted": provider},
        "share": "disabled",
        "small_model": "scripted/scripted",
    }


OPENCODE_SWITCHES = ("DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_LSP_DOWNLOAD", "DISABLE_DEFAULT_PLUGINS")


def _opencode(place: Place) -> Launch:
    place.write(".config/opencode/opencode.json", _opencode_config(place))
    environment = {f"OPENCODE_{switch}": "1" for switch in OPENCODE_SWITCHES}
    return Launch([place.program("opencode"), "run"], environment)


def _kilo(place: Place) -> Launch:
    place.write(".config/kilo/kilo.json", _opencode_config(place))
    environment = {f"KILO_{switch}": "1" for switch in OPENCODE_SWITCHES}
    return Launch([place.program("kilo"), "run", "--auto"], environment | {"KILO_TELEMETRY_LEVEL": "off"})


def _copilot_cli(place: Place) -> Launch:
    local = {"type": "local", **place.stdio} if place.command else {}
    server = {"type": "http", "url": place.url} if place.url else local
    config = place.write("mcp.json", {"mcpServers": {"skills": {**server, "tools": ["*"]}}})
    environment = {
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_HOME": str(place.home / ".copilot"),
        "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_PROVIDER_BASE_URL": f"{place.model}/v1",
        "COPILOT_PROVIDER_WIRE_API": "completions",
    }
    options = ("--additional-mcp-config", f"@{config}", "--allow-all-tools", "--no-auto-update", "--no-color", "-p")
    return Launch([place.program("copilot"), *options], environment)


def _cline(place: Place) -> Launch:
    server = place.entry(type="streamableHttp", url=place.url) | {"disabled": False, "autoApprove": ["*"]}
    data = place.home / "cline"
    place.write("cline/settings/cline_mcp_settings.json", {"mcpServers": {"skills": server}})
    cline = place.program("cline")
    account = f"-k dummy -m scripted -b {place.model}/v1"
    script = f"""{cline} auth openai-compatible {account} --data-dir {data} &&
exec {cline} --data-dir {data} --auto-approve true -t 100 "$0"
"""
    return Launch(["sh", "-c", script], {"CLINE_TELEMETRY_DISABLED": "1"})


def _continue(place: Place) -> Launch:
    model = {
        "name": "scripted",
        "provider": "openai",
        "model": "gpt-4o",
        "apiBase": f"{place.model}/v1",
        "apiKey": "dummy",
        "roles": ["chat"],
        "capabilities": ["tool_use"],
    }
    server = {"name": "skills", **place.entry(type="streamable-http", url=place.url)}
    config = {"name": "trial", "version": "0.0.1", "schema": "v1", "models": [model], "mcpServers": [server]}
    file = place.write("config.yaml", json.dumps(config))  # JSON is YAML
    environment = {"CONTINUE_GLOBAL_DIR": str(place.home / ".continue"), "CONTINUE_TELEMETRY_ENABLED": "0"}
    return Launch([place.program("cn"), "--config", file, "--auto", "-p"], environment)


COMMAND_LINE_CLIENTS = (
    Client("claude-code", "Claude Code, `alwaysLoad`", CLAUDE_CODE, lambda place: _claude_code(place, alwaysLoad=True)),
    Client("claude-code-plain", "Claude Code", CLAUDE_CODE, _claude_code),
    Client("gemini-cli", "Gemini CLI", _npm("@google/gemini-cli", folder="gemini-cli"), _gemini_cli),
    Client("opencode", "opencode", _npm("opencode-ai", folder="opencode"), _opencode),
    Client("copilot-cli", "GitHub Copilot CLI", _npm("@github/copilot", folder="copilot-cli"), _copilot_cli),
    Client("kilo", "Kilo", _npm("@kilocode/cli@7.7.7", folder="kilo"), _kilo),
    Client("codex", "Codex, `required`", CODEX, lambda place: _codex(place, required=True)),
    Client("codex-plain", "Codex", CODEX, _codex),
    Client(
        "qwen-code", "Qwen Code, `alwaysLoadTools`", QWEN_CODE, lambda place: _qwen_code(place, alwaysLoadTools=True)
    ),
    Client("qwen-code-plain", "Qwen Code", QWEN_CODE, _qwen_code),
    Client("cline", "Cline CLI", _npm("cline", folder="cline"), _cline),
    Client("continue", "Continue CLI", _npm("@continuedev/cli", folder="continue"), _continue),
)
"""Those with a model and tools of their own, the most used first."""
