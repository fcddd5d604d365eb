"""The shape of the configuration file: what each part may hold (design section 7); times in seconds.

The models take what `document` gives: text, lists and mappings. Descriptions are what editors show on hover.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from proxy.config.core_schema import typed
from proxy.config.hosts import a_host, an_origin
from proxy.config.problems import Place
from proxy.core.limits import (
    DEFAULT_CALLS_IN_FLIGHT,
    DEFAULT_CALLS_PER_MINUTE,
    DEFAULT_HELD_QUESTIONS,
    LIMIT_NAMES,
    UNLIMITED,
    Limits,
)
from proxy.core.names import Naming
from proxy.core.server import EraChoice, Isolation, StdioServer
from proxy.core.settings import PerKind, Publish, Settings
from proxy.core.steps import CALLS_PER_STEP, HOOK_TIMEOUT, MOST_RETRIES, MOST_RETRY_DELAY_S, Call, Workflow
from proxy.core.texts import size

SERVERS = ("servers", "mcpServers", "mcp_servers")
"""The keys that servers may stand under."""
SKILLS = "skill_configs"
SKILL_PATHS = "skill_paths"
PROFILES = "profiles"
DENIED = "black_tool_actions"
INTERNAL = "internal_tools"
ALLOWLISTS = ("tool_list", "resource_list", "prompt_list", INTERNAL)
HOOKS: Final = ("on_activate", "on_offload")
ON_START: Final = "on_scope_start"
BIND: Final = "bind"
STEPS: Final = "steps"
PARALLEL: Final = "parallel"
STEP_LISTS: Final = (*HOOKS, ON_START, STEPS, PARALLEL)
WORKFLOW: Final = (
    *("parameters", "output", "output_schema", "expose_as_tool", "activation"),
    *("max_execution_time_seconds", "max_iterations", "max_concurrent_executions"),
)
"""What is said of the steps of a skill."""
ACTING: Final = (*HOOKS, "hook_timeout", INTERNAL, BIND, STEPS, *WORKFLOW)
"""What is said of a skill that does something by itself."""
_FREE_OF_SKILLS: Final = frozenset({"parameters", "output", "output_schema"})
_FREE_OF_STEPS: Final = frozenset({"arguments", "when", "for_each"})
_FREE: Final = _FREE_OF_SKILLS | _FREE_OF_STEPS
KINDS = tuple(field.name for field in fields(PerKind))
"""The kinds of scopes that have a bound and an idle time."""

CLIENT_FILTERS = frozenset(
    {
        *("allowedTools", "disabledTools", "disabled_tools", "enabledTools", "enabled_tools"),
        *("available_tools", "excludeTools", "excludedTools", "includeTools", "includedTools", "tools"),
    }
)
"""Keys by which clients choose tools; here skills do."""
SIGN_IN = frozenset({"auth", "authProviderType", "authorization", "authorization_token", "headersHelper", "oauth"})
"""Keys by which clients sign in at servers; here headers do."""
TIMES = frozenset(
    {
        *("client_session_timeout_seconds", "initTimeout", "networkTimeout", "sse_read_timeout"),
        *("startup_timeout_ms", "startup_timeout_sec", "tool_timeout_sec", "toolTimeout"),
    }
)
"""Keys by which clients say how long they wait."""
CLIENT_KEYS = (
    CLIENT_FILTERS
    | SIGN_IN
    | TIMES
    | {
        *("alwaysAllow", "alwaysLoad", "alwaysLoadTools", "autoApprove", "autoStart", "bundled", "chatMenu"),
        *("default_tools_approval_mode", "description", "dev", "displayName", "gallery", "icon", "iconUrl", "icons"),
        *("id", "isActive", "isRemote", "logo", "metadata", "name", "note", "notes", "provider", "required"),
        *("sampling", "sandbox", "sandboxEnabled", "scopes", "source", "supports_parallel_tool_calls", "tags"),
        *("title", "trust", "version"),
    }
)
"""Keys of a server's entry that only clients understand: accepted, named as unused."""

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COUNT = re.compile(r"[0-9]{1,12}")
_SIZE = re.compile(r"(?P<count>[0-9]{1,12}) ?(?P<unit>[KMG]iB)?")
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_NAME_LIMITS = (16, 128)
_GUIDANCE_LIMIT = 1000


def _flag(value: object) -> object:
    if isinstance(value, str) and value.lower() in _FLAGS:
        return _FLAGS[value.lower()]
    raise PydanticCustomError("flag", "must be true or false")


def _positive(value: object) -> float | None:
    if isinstance(value, str) and _NUMBER.fullmatch(value) and 0 < (number := float(value)) < float("inf"):
        return number
    return None


def _seconds(value: object) -> object:
    if (number := _positive(value)) is not None:
        return number
    raise PydanticCustomError("seconds", "must be a number of seconds greater than 0, such as 30")


def _minutes(value: object) -> object:
    if (number := _positive(value)) is not None:
        return number
    raise PydanticCustomError("minutes", "must be a number of minutes greater than 0, such as 30")


def _count(value: object) -> object:
    if isinstance(value, str) and _COUNT.fullmatch(value) and int(value) > 0:
        return int(value)
    raise PydanticCustomError("count", "must be a whole number greater than 0")


def _retries(value: object) -> object:
    if isinstance(value, str) and _COUNT.fullmatch(value) and 0 < int(value) <= MOST_RETRIES:
        return int(value)
    raise PydanticCustomError("retries", "must be a whole number from 1 to {most}", {"most": MOST_RETRIES})


def _retry_delay(value: object) -> object:
    if (number := _positive(value)) is not None and number <= MOST_RETRY_DELAY_S:
        return number
    most = f"{MOST_RETRY_DELAY_S:g}"
    raise PydanticCustomError(
        "retry_delay", "must be a number of seconds greater than 0, at most {most}", {"most": most}
    )


def _count_or_unlimited(value: object) -> object:
    if value == "unlimited":
        return UNLIMITED
    if isinstance(value, str) and _COUNT.fullmatch(value) and int(value) > 0:
        return float(value)
    raise PydanticCustomError("limit", "must be a whole number greater than 0, or unlimited")


def _of_every_kind(number: Callable[[object], object]) -> Callable[[object], object]:
    """Takes one number for every kind of scope, or leaves a mapping by kind as it is."""

    def taken(value: object) -> object:
        if isinstance(value, dict):
            return cast("object", value)
        number(value)
        return dict.fromkeys(KINDS, value)

    return taken


def _size(value: object) -> object:
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found and (size := int(found["count"]) * _UNITS[found["unit"]]):
        return size
    raise PydanticCustomError("size", "must be a size greater than 0: bytes, or such as 500KiB or 32MiB")


def _within_name_limits(value: int) -> int:
    low, high = _NAME_LIMITS
    if low <= value <= high:
        return value
    raise PydanticCustomError("name_limit", "must be between 16 and 128")


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _a_name(value: str) -> str:
    if value:
        return value
    raise PydanticCustomError("name", 'is empty text and no name: take it out ([] or "*" stands for all)')


def _a_client(value: str) -> str:
    if value:
        return value
    raise PydanticCustomError("client", "is empty: write the name of a client, or a pattern such as acme-*")


def _a_folder(value: str) -> str:
    if value.strip():
        return value
    raise PydanticCustomError("folder", "is empty: write the path of a folder")


def _one_name(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    if len(names) == 1 or "[" in value:  # in [...] of a pattern a comma is a character like others
        return value
    listed = ", ".join(name for name in names if name)
    raise PydanticCustomError("comma", "one text with a comma: write a list: [{names}]", {"names": listed})


def _short(value: str) -> str:
    if value.strip() and size(value) <= _GUIDANCE_LIMIT:
        return value
    raise PydanticCustomError("guidance", "must hold 1 to 1000 bytes: the skills stand beside it, in 2000 in all")


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if value:
        return value
    raise PydanticCustomError(
        "denied", 'an empty list is unclear: write "*" to deny all tools, or leave the server out'
    )


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}
"""What an editor takes for text here: it reads `8080` and `on` as what they look like; the proxy reads text."""

Kind: TypeAlias = Literal["stdio", "http", "streamable-http", "streamableHttp", "streamable_http", "sse"]
"""How clients call the ways to reach a server."""
Flag: TypeAlias = Annotated[bool, BeforeValidator(_flag)]
Seconds: TypeAlias = Annotated[
    float, BeforeValidator(_seconds), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
Minutes: TypeAlias = Annotated[
    float, BeforeValidator(_minutes), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})
]
Count: TypeAlias = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": "integer", "minimum": 1})]
Retries: TypeAlias = Annotated[
    int, BeforeValidator(_retries), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_RETRIES})
]
RetryDelay: TypeAlias = Annotated[
    float,
    BeforeValidator(_retry_delay),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_RETRY_DELAY_S}),
]
CountOrUnlimited: TypeAlias = Annotated[
    float,
    BeforeValidator(_count_or_unlimited),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "unlimited"}]}),
]
Size: TypeAlias = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^0*[1-9][0-9]* ?([KMG]iB)?$"}]}
    ),
]
"""In bytes, or as `500KiB`, `32MiB`, `1GiB`."""
NameLimit: TypeAlias = Annotated[
    int,
    BeforeValidator(_count),
    AfterValidator(_within_name_limits),
    WithJsonSchema({"type": "integer", "minimum": _NAME_LIMITS[0], "maximum": _NAME_LIMITS[1]}),
]
Scalar: TypeAlias = Annotated[str, WithJsonSchema(_SCALAR_SCHEMA)]
Name: TypeAlias = Annotated[str, AfterValidator(_a_name), WithJsonSchema({**_SCALAR_SCHEMA, "minLength": 1})]
ClientName: TypeAlias = Annotated[str, AfterValidator(_a_client), WithJsonSchema({**_SCALAR_SCHEMA, "minLength": 1})]
FolderPath: TypeAlias = Annotated[str, AfterValidator(_a_folder), WithJsonSchema({**_SCALAR_SCHEMA, "minLength": 1})]
ToolName: TypeAlias = Annotated[Name, AfterValidator(_one_name)]
Allowlist: TypeAlias = Annotated[
    tuple[Name, ...], BeforeValidator(_listed, json_schema_input_type=Annotated[Name | tuple[Name, ...], Field()])
]
"""`[]` or `"*"`: everything; names and shell-style patterns; a bare string is a list of one."""
Words: TypeAlias = Annotated[
    tuple[ToolName, ...], BeforeValidator(_listed, json_schema_input_type=Annotated[Name | tuple[Name, ...], Field()])
]
"""A list of names; a bare string is a list of one."""
Toollist: TypeAlias = Annotated[
    tuple[ToolName, ...], BeforeValidator(_listed, json_schema_input_type=Annotated[Name | tuple[Name, ...], Field()])
]
"""The same of tools, whose names hold no comma."""
Denylist: TypeAlias = Annotated[
    tuple[ToolName, ...],
    AfterValidator(_not_empty),
    BeforeValidator(
        _listed, json_schema_input_type=Annotated[Name | Annotated[tuple[Name, ...], Field(min_length=1)], Field()]
    ),
]


Free: TypeAlias = Annotated[Any, BeforeValidator(typed), WithJsonSchema({})]
"""Any JSON value: text without quotes may be a number or a boolean, as in YAML's core schema."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerEntry(_Part):
    """An MCP server: a program to start (command) or one elsewhere (url). Entries of clients work as pasted."""

    type: Kind | None = Field(
        default=None,
        description="How it is reached. Default: stdio where there is a command, http where there is a url.",
    )
    command: str | None = Field(
        default=None,
        description="The program to start. A bare name is looked for beside the proxy's interpreter, then on PATH; "
        "relative paths start at this file; ~ works. ${VAR} and ${VAR:-default} are replaced.",
    )
    args: tuple[Scalar, ...] = Field(default=(), description="Arguments of the program. ${VAR} is replaced.")
    env: dict[str, Scalar] = Field(
        default_factory=dict[str, str],
        description="Variables for the program; values are text as written. ${VAR} is replaced.",
    )
    cwd: str | None = Field(
        default=None, description="The program's working directory, relative to this file. ${VAR} is replaced."
    )
    env_file: str | None = Field(
        default=None,
        description="A dotenv file, relative to this file: for ${VAR} in this entry, and given to the program.",
    )
    env_file_camel: str | None = Field(default=None, alias="envFile", description="The same as env_file.")
    inherit_env: tuple[Name, ...] = Field(
        default=(),
        description="More variables (names or patterns such as AWS_*) that the program inherits. It always gets HOME, "
        "PATH and the like, the locale, proxy settings and certificate paths.",
    )
    url: str | None = Field(default=None, description="The server's http or https URL. ${VAR} is replaced.")
    http_url: str | None = Field(default=None, alias="httpUrl", description="The same as url.")
    server_url: str | None = Field(default=None, alias="serverUrl", description="The same as url.")
    headers: dict[str, Scalar] = Field(
        default_factory=dict[str, str], description="HTTP headers for every request. ${VAR} is replaced."
    )
    pass_headers: tuple[Scalar, ...] = Field(
        default=(),
        description="Names of headers that, where a client's request has them, go on to this server with it. "
        "Only for type http.",
    )
    timeout: Seconds = Field(
        default=StdioServer.timeout, description="Seconds that a call may go without a result or progress."
    )
    start_timeout: Seconds = Field(
        default=StdioServer.start_timeout, description="Seconds from starting the server to its first list of tools."
    )
    stop_timeout: Seconds = Field(
        default=StdioServer.stop_timeout,
        description="Seconds that a program has to end by itself once its input is closed, and as many again after "
        "SIGTERM; then it is killed.",
    )
    idle_stop: Seconds | None = Field(
        default=StdioServer.idle_stop,
        description="Seconds after which it is ended when no client has a skill active that needs it. Default: never.",
    )
    start: Literal["lazy", "eager"] = Field(
        default="lazy", description="lazy: started when a skill first needs it; eager: when the proxy starts."
    )
    era: EraChoice = Field(
        default="auto",
        description="Protocol era: handshake (up to 2025-11-25), modern (2026-07-28), or auto to find out; where a "
        "connection is for one client, auto prefers the client's own.",
    )
    isolation: Isolation = Field(
        default=StdioServer.isolation,
        description="shared: one connection for all clients; scope: one per client (scope), for stateful servers such "
        "as browsers.",
    )
    max_concurrency: Count | None = Field(
        default=StdioServer.max_concurrency,
        description="Most calls in work at this server, the others wait; for servers that cannot do parallel work. "
        "Default: no limit.",
    )
    max_connections: Count = Field(
        default=StdioServer.max_connections,
        description="With isolation: scope, for how many clients it may run at a time.",
    )
    prefix: Scalar | None = Field(
        default=None,
        description='What the names of its tools begin with, before __; "" for none. Default: the server\'s key.',
    )
    disabled: Flag = Field(default=False, description="true: not started, and skills go without it.")
    enabled: Flag = Field(default=True, description="false: the same as disabled: true.")

    @property
    def on(self) -> bool:
        """Whether the server is to be used at all."""
        return self.enabled and not self.disabled

    @property
    def address(self) -> str | None:
        """The URL under whichever key it stands."""
        return next((url for url in (self.url, self.http_url, self.server_url) if url is not None), None)

    @property
    def dotenv(self) -> str | None:
        """The path of its env_file under whichever key it stands."""
        return self.env_file if self.env_file is not None else self.env_file_camel


class RequiresBlock(_Part):
    """What must be there for a skill to be offered."""

    bins: Words = Field(default=(), description="Programs, on PATH.")
    any_bins: Words = Field(default=(), description="Programs of which one, at least, is on PATH.")
    env: Words = Field(default=(), description="Environment variables that are set and not empty.")
    os: Words = Field(default=(), description="One of these systems: linux, macos, windows.")
    servers: Words = Field(default=(), description="Servers of this file that are not disabled.")


class RetryEntry(_Part):
    """How a step is tried again after a failure that may pass."""

    times: Retries = Field(description=f"How often it is tried again at most, from 1 to {MOST_RETRIES}.")
    delay: RetryDelay = Field(
        default=Call.retry_delay, description=f"Seconds before each further attempt, at most {MOST_RETRY_DELAY_S:g}."
    )


class StepEntry(_Part):
    """A call of a tool, the invocation of a skill, or steps side by side."""

    name: Scalar | None = Field(
        default=None, description="What people are told of it. Default: save_as, or else what it calls."
    )
    tool: Scalar | None = Field(default=None, description="The tool that it calls: SERVER/TOOL.")
    skill: Scalar | None = Field(default=None, description="The skill with steps that it invokes, by id.")
    parallel: tuple["StepEntry", ...] | None = Field(
        default=None, description="Steps that run side by side, instead of tool or skill; beside it goes only when."
    )
    arguments: dict[str, Free] = Field(
        default_factory=dict[str, Any], description="By name; texts may hold expressions: {{ ... }}."
    )
    save_as: Scalar | None = Field(
        default=None,
        description="Where its result is kept: NAME for steps.NAME (and heap.NAME in hooks), or heap.NAME.",
    )
    when: Free = Field(
        default=True, description="An expression, or true or false: where it is not true, the step is left out."
    )
    for_each: Free | None = Field(
        default=None,
        description="A list, or an expression that gives one: the step is done for each, as item, with its index.",
    )
    on_error: Literal["fail", "continue"] = Field(
        default="fail", description="fail: what follows is not done; continue: it is."
    )
    timeout: Seconds | None = Field(
        default=None, description="Seconds that one attempt may take. Default: as long as all steps have."
    )
    retry: RetryEntry | None = Field(
        default=None,
        description="How it is tried again, where it does no harm twice: by the tool's annotations, or idempotent.",
    )
    idempotent: Flag = Field(
        default=Call.idempotent, description="true: it does no harm twice, whatever the tool's annotations say."
    )


class SkillEntry(_Part):
    """A skill: texts for the model, the tools it grants while it is active, and what it does by itself."""

    name: Scalar | None = Field(default=None, description="Name for people and models. Default: the skill's id.")
    desc: Scalar = Field(default="", description="One line by which the model chooses the skill.")
    usage: str = Field(default="", description="The guide that the model gets when it activates the skill.")
    active: Flag = Field(default=False, description="true: active from the start; the model may offload it.")
    pinned: Flag = Field(default=False, description="true: active from the start, and cannot be offloaded.")
    enabled: Flag = Field(default=True, description="false: the skill does not exist.")
    tool_list: dict[str, Toollist] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description='By server, the tools it grants: [] or "*" for all, or names and patterns such as get_*.',
    )
    resource_list: dict[str, Allowlist] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description="By server, resources to show (URIs or patterns) beyond those that come with all its tools.",
    )
    prompt_list: dict[str, Allowlist] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description="By server, prompts to show (names or patterns) beyond those that come with all its tools.",
    )

    category: Scalar = Field(default="", description="A word by which skills can be listed.")
    tags: Words = Field(default=(), description="Words by which skills can be listed and found.")
    version: Scalar = Field(default="", description="Of the skill; shown in lists.")
    author: Scalar = Field(default="", description="Of the skill; shown in lists.")
    required_capabilities: Words = Field(
        default=(), description="What a profile must have among its capabilities for this skill to be offered."
    )
    requires: RequiresBlock = Field(
        default_factory=RequiresBlock, description="What must be there for this skill to be offered."
    )
    requires_skills: Words = Field(
        default=(), description="Skills that are activated with it, and offloaded when no other needs them."
    )
    conflicts_with: Words = Field(default=(), description="Skills that cannot be active beside it.")
    exclusive: Flag = Field(
        default=False,
        description="true: activating it first offloads those that it conflicts with; false: it is refused.",
    )
    max_active_minutes: Minutes | None = Field(
        default=None, description="Minutes without use after which it is offloaded by itself. Default: never."
    )

    on_activate: tuple[StepEntry, ...] = Field(
        default=(), description="Steps that are done when it is activated; where one fails, it is not."
    )
    on_offload: tuple[StepEntry, ...] = Field(
        default=(), description="Steps that are done when it is offloaded, once for each activation."
    )
    hook_timeout: Seconds | None = Field(
        default=None, description="Seconds that each of these lists of steps may take. Default: proxy.hook_timeout."
    )
    internal_tools: dict[str, Toollist] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description="By server, tools that its steps may call beside those of tool_list, and clients never.",
    )
    bind: dict[str, dict[str, Free]] = Field(
        default_factory=dict[str, dict[str, Any]],
        description="By SERVER/TOOL, arguments that are filled in for clients while it is active; texts may hold "
        "expressions: {{ ... }}.",
    )
    parameters: dict[str, Free] | None = Field(
        default=None,
        description="What steps are given: by name, {type, description, required, default}; or a JSON Schema.",
    )
    steps: tuple[StepEntry, ...] = Field(default=(), description="What is done when the skill is invoked, in order.")
    output: Free = Field(
        default=None,
        description="The result; texts may hold expressions: {{ ... }}. Default: the result of the last step.",
    )
    output_schema: dict[str, Free] | None = Field(
        default=None,
        description="What the result must fit: a JSON Schema; or by name a type, or {type, description, required}. "
        "Default: any result does.",
    )
    expose_as_tool: Flag = Field(
        default=Workflow.tool, description="true: while the skill is active, its steps are also a tool of its own name."
    )
    activation: Literal["optional", "required"] = Field(
        default="optional", description="required: its steps can be invoked only while it is active."
    )
    max_execution_time_seconds: Seconds = Field(
        default=Workflow.max_seconds, description="Seconds that one run of the steps may take."
    )
    max_iterations: Count | None = Field(
        default=None, description=f"Most calls in one run. Default: {CALLS_PER_STEP} for each step."
    )
    max_concurrent_executions: Count = Field(
        default=Workflow.max_runs, description="Most runs at a time for one client."
    )


class SkillPath(_Part):
    """A folder with skills in folders."""

    path: FolderPath = Field(description="The folder, relative to this file; ~ works.")
    trusted: Flag = Field(
        default=False,
        description="true: what the SKILL.md files below say of tools, active and pinned holds; false: they give "
        "guides alone, until skill_configs says more.",
    )


class LimitsBlock(_Part):
    """What each user may use at a time (everybody without a token is one): numbers, or unlimited."""

    sessions: CountOrUnlimited | None = Field(
        default=None,
        description="Open HTTP sessions. Default: of max_scopes.session, the same part for each user of proxy.tokens.",
    )
    namespaces: CountOrUnlimited | None = Field(
        default=None,
        description="Live namespaces. Default: of max_scopes.namespace, the same part for each user of proxy.tokens.",
    )
    processes: CountOrUnlimited | None = Field(
        default=None,
        description="Connections of its own to servers with isolation: scope, at all of them together. Default: of "
        "each server's max_connections, the same part for each user of proxy.tokens.",
    )
    calls_in_flight: CountOrUnlimited | None = Field(
        default=None, description=f"Calls in work. Default: {DEFAULT_CALLS_IN_FLIGHT}."
    )
    calls_per_minute: CountOrUnlimited | None = Field(
        default=None,
        description=f"Calls in any 60 seconds. Default: {DEFAULT_CALLS_PER_MINUTE} for each of several users of "
        "tokens, else unlimited.",
    )
    held_questions: CountOrUnlimited | None = Field(
        default=None,
        description=f"Questions of servers that wait for an answer of its clients. Default: {DEFAULT_HELD_QUESTIONS}.",
    )

    @property
    def limits(self) -> Limits:
        """The same for the rest of the program."""
        return Limits(**{name: getattr(self, name) for name in LIMIT_NAMES})


class ProfileEntry(_Part):
    """What some clients may use. The first profile that a client's namespace and user match holds for it."""

    namespace: Name | None = Field(
        default=None, description='A pattern on the namespace; "*" also matches clients without one.'
    )
    principal: Name | None = Field(
        default=None, description='A pattern on the user of proxy.tokens; "*" also matches clients without one.'
    )
    allowed_skills: Words = Field(default=("*",), description="Ids and patterns of the skills that exist for them.")
    denied_skills: Words = Field(default=(), description="Ids and patterns of skills that do not, though allowed.")
    capabilities: Words = Field(
        default=(), description="What skills may require in required_capabilities; names and patterns."
    )
    active: Words | None = Field(
        default=None, description="The skills that are active at the start, instead of those that say so themselves."
    )
    max_active_skills: Count | None = Field(
        default=None, description="Most skills active at a time, pinned ones aside. Default: no limit."
    )
    limits: LimitsBlock = Field(
        default_factory=LimitsBlock,
        description="What each user may use at a time, counted for the clients of this profile alone. Default: "
        "proxy.limits, counted for all clients of a user.",
    )


class CountByKind(_Part):
    """A number for each kind of scope."""

    session: Count = Field(default=Settings.max_scopes.session, description="Of sessions over HTTP.")
    namespace: Count = Field(default=Settings.max_scopes.namespace, description="Of namespaces.")
    principal: Count = Field(default=Settings.max_scopes.principal, description="Of users with a token.")


class SecondsByKind(_Part):
    """Seconds for each kind of scope."""

    session: Seconds = Field(default=Settings.scope_idle.session, description="Of sessions over HTTP.")
    namespace: Seconds = Field(default=Settings.scope_idle.namespace, description="Of namespaces.")
    principal: Seconds = Field(default=Settings.scope_idle.principal, description="Of users with a token.")


class StateBlock(_Part):
    """Where the state of clients is kept, and the records of runs."""

    backend: Literal["memory", "sqlite"] = Field(
        default="memory",
        description="memory: it ends with the proxy; sqlite: a file has the active skills and heaps of namespaces and "
        "users, and the newest runs of skills.",
    )
    path: str | None = Field(
        default=None,
        description="With backend sqlite: the file, relative to this one; ~ works. It is made if there is none.",
    )


class PublishBlock(_Part):
    """How skills are shown beside the tool SKILL; some clients make a tool of each prompt and resource."""

    prompts: Flag = Field(default=Publish.prompts, description="Each skill is a prompt that a person can choose.")
    resources: Flag = Field(
        default=Publish.resources, description="Guides of skills, and their files, are listed as resources."
    )
    extension: Flag = Field(
        default=Publish.extension,
        description="The methods of the skills extension (io.modelcontextprotocol/skills) are served, with the files "
        "that they name.",
    )


class ProxyBlock(_Part):
    """Settings of the proxy itself."""

    list_wait: Seconds = Field(
        default=Settings.list_wait, description="Seconds that a list waits for servers that are starting."
    )
    activation_wait: Seconds = Field(
        default=Settings.activation_wait, description="Seconds that an activation waits for its servers."
    )
    call_route: Literal["auto", "on", "off"] = Field(
        default=Settings.call_route,
        description="Whether SKILL_CALL is shown: auto shows it to all clients but those that are known to read a "
        "changed list of tools in time.",
    )
    call_route_clients: tuple[ClientName, ...] = Field(
        default=Settings.call_route_clients,
        description="With call_route: auto, what clients call themselves (clientInfo.name) that read a changed list "
        "in time, so that they need no SKILL_CALL; names and patterns such as acme-*.",
    )
    listing: Literal["live", "stable"] | None = Field(
        default=None,
        description="live: lists follow the active skills; stable: lists never change, and tools of skills are called "
        "by SKILL_CALL, which keeps prompt caches.",
        json_schema_extra={"default": Settings.listing},
    )
    modern_listing: Literal["live", "stable"] | None = Field(
        default=None, description="The old name of listing.", json_schema_extra={"deprecated": True}
    )
    publish: PublishBlock = Field(
        default_factory=PublishBlock, description="How skills are shown beside the tool SKILL."
    )
    max_scopes: Annotated[
        CountByKind, BeforeValidator(_of_every_kind(_count), json_schema_input_type=Count | CountByKind)
    ] = Field(
        default=CountByKind(),
        description="How many clients' states are kept at most, of each kind: one number, or by kind.",
        json_schema_extra={"default": Settings.max_scopes.session},
    )
    scope_idle: Annotated[
        SecondsByKind, BeforeValidator(_of_every_kind(_seconds), json_schema_input_type=Seconds | SecondsByKind)
    ] = Field(
        default=SecondsByKind(),
        description="Seconds that the state of a client lives without a request: one number, or by kind.",
        json_schema_extra={"default": Settings.scope_idle.session},
    )
    limits: LimitsBlock = Field(
        default_factory=LimitsBlock,
        description="What each user may use at a time; everybody without a token is one user.",
    )
    keep_inventories: Flag = Field(
        default=Settings.keep_inventories,
        description="Whether what servers offer is remembered from one run to the next, in the user's cache folder.",
    )
    definitions: Literal["warn", "hold", "ignore"] = Field(
        default=Settings.definitions,
        description="What the changed definition of a tool leads to that a client was granted: warn: it is logged and "
        "told; hold: the tool is withheld until `mcp-skill-proxy pins approve`; ignore: nothing.",
    )
    state: StateBlock = Field(
        default_factory=StateBlock,
        description="Where the state of clients and the records of runs are kept, and whether they outlive the proxy.",
    )
    guidance: Annotated[str, AfterValidator(_short)] | None = Field(
        default=None,
        description="How to choose skills, in SKILL's description, instead of the proxy's own words; at most 1000 "
        "bytes.",
    )
    name_limit: NameLimit = Field(default=Naming.limit, description="The longest name of a tool, in characters.")
    tokens: dict[str, Scalar] = Field(
        default_factory=dict[str, str],
        description="By user, the bearer token that HTTP clients send, at least 16 characters where other machines can "
        "reach the proxy. Write ${VAR}, not the token itself.",
    )
    allowed_hosts: tuple[Annotated[Name, AfterValidator(a_host)], ...] = Field(
        default=Settings.allowed_hosts, description="Values of the Host header that HTTP accepts beyond loopback."
    )
    allowed_origins: tuple[Annotated[Name, AfterValidator(an_origin)], ...] | None = Field(
        default=Settings.allowed_origins,
        description="Values of the Origin header that HTTP accepts beyond loopback. []: no web page at all, also none "
        "of loopback.",
    )
    hook_timeout: Seconds = Field(
        default=HOOK_TIMEOUT,
        description="Seconds that on_scope_start may take, and each hook of a skill that does not say otherwise.",
    )
    expression_env: Words = Field(
        default=(), description="Environment variables that expressions may read, as env.NAME."
    )
    keep_alive: Seconds = Field(
        default=Settings.keep_alive,
        description="Seconds of silence after which an event stream to a client gets a comment, so that nothing on "
        "the way cuts it.",
    )
    max_message_size: Size | None = Field(
        default=None,
        description="The largest message, in bytes or as 32MiB, from clients and from servers, over every transport, "
        "once it is decompressed. Without it, the body of a client's HTTP request may have 4MiB, and everything else "
        "64MiB.",
    )
    max_request_size: Size | None = Field(
        default=None, description="An older name of max_message_size.", json_schema_extra={"deprecated": True}
    )
    max_event_size: Size | None = Field(
        default=None, description="An older name of max_message_size.", json_schema_extra={"deprecated": True}
    )
    input_wait: Seconds = Field(
        default=Settings.input_wait,
        description="Seconds that a server's question to the user may stay unanswered.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default=Settings.log_level, description="The least important messages that are logged, to stderr."
    )
    reload: Literal["skills", "full", "off"] = Field(
        default=Settings.reload,
        description="What a change of this file changes at once: skills: all but servers, tokens and this setting, "
        "which wait for SIGHUP or a restart; full: all; off: nothing.",
    )


def _a_skill_path(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


SkillPathOrName: TypeAlias = Annotated[
    SkillPath, BeforeValidator(_a_skill_path, json_schema_input_type=Name | SkillPath)
]
Servers: TypeAlias = dict[str, ServerEntry]


class File(_Part):
    """The configuration of mcp-skill-proxy."""

    schema_: str | None = Field(default=None, alias="$schema", description="Where editors find this schema.")
    servers: Servers = Field(
        default_factory=dict[str, ServerEntry], description="The MCP servers behind the proxy, by a key of your choice."
    )
    servers_camel: Servers = Field(
        default_factory=dict[str, ServerEntry], alias="mcpServers", description="The same as servers."
    )
    servers_snake: Servers = Field(
        default_factory=dict[str, ServerEntry], alias="mcp_servers", description="The same as servers."
    )
    skill_configs: dict[str, SkillEntry] = Field(
        default_factory=dict[str, SkillEntry], description="The skills, by id."
    )
    skill_paths: tuple[SkillPathOrName, ...] = Field(
        default=(),
        description="Folders with skills, each a folder with a SKILL.md. A later one wins over an earlier one, and "
        "what skill_configs says over all.",
    )
    profiles: tuple[ProfileEntry, ...] | None = Field(
        default=None,
        description="Who may use what: the first that a client matches holds. Who matches none gets nothing. Default: "
        "everybody may use every skill that requires no capability.",
    )
    black_tool_actions: dict[str, Denylist] = Field(
        default_factory=dict[str, tuple[str, ...]],
        description='By server, tools (names, patterns, or "*") that no skill grants, whatever its lists say.',
    )
    on_scope_start: tuple[StepEntry, ...] = Field(
        default=(),
        description="Steps that are done once for each client, before its first call; they may call any tool that is "
        "not denied.",
    )
    env_file: str | None = Field(
        default=None, description="A dotenv file, relative to this file: for ${VAR} where the environment has none."
    )
    proxy: ProxyBlock = Field(
        default_factory=ProxyBlock, description="Settings of the proxy itself: waiting, names, HTTP, logs."
    )


def known_keys(place: Place) -> tuple[str, ...]:
    """The keys that the mapping at `place` may have; none where they are free."""
    match place:
        case ():
            return _keys(File)
        case ("proxy", "max_scopes" | "scope_idle"):
            return KINDS
        case (str(part), _) if part in SERVERS:
            return (*_keys(ServerEntry), *sorted(CLIENT_KEYS))
        case _ if is_step(place):
            return _keys(StepEntry)
        case (*step, "retry") if is_step(tuple(step)):
            return _keys(RetryEntry)
        case (first, *others):
            anywhere = (first, *(None if index == 0 else key for index, key in enumerate(others)))
            model = _MODELS.get(place) or _MODELS.get(anywhere)
            return _keys(model) if model is not None else ()
        case _:  # a tuple is empty or has a first
            raise AssertionError


def is_step(place: Place) -> bool:
    """Whether a step stands at `place`."""
    match place:
        case (str(part), str(), str(kind), int(), *inside) if part == SKILLS and kind in {*HOOKS, STEPS}:
            pass
        case (str(part), int(), *inside) if part == ON_START:
            pass
        case _:
            return False
    return not inside or (len(inside) == 2 and inside[0] == PARALLEL and isinstance(inside[1], int))  # noqa: PLR2004


def is_free(place: Place) -> bool:
    """Whether any JSON value may stand at `place`, which is not inside of another such."""
    if place[-1] not in _FREE and not binds(place):  # nearly always, and there are very many places
        return False
    match place:
        case (str(part), str(), str(key)) if part == SKILLS:
            return key in _FREE_OF_SKILLS
        case (*step, str(key)) if not binds(place):
            return key in _FREE_OF_STEPS and is_step(tuple(step))
        case _:
            return True


def binds(place: Place) -> bool:
    """Whether an argument is bound at `place`."""
    return len(place) == 5 and place[0] == SKILLS and place[2] == BIND  # noqa: PLR2004


_MODELS: Mapping[tuple[str | int | None, ...], type[BaseModel]] = {
    ("proxy",): ProxyBlock,
    ("proxy", "state"): StateBlock,
    ("proxy", "publish"): PublishBlock,
    ("proxy", "limits"): LimitsBlock,
    (SKILLS, None): SkillEntry,
    (SKILLS, None, "requires"): RequiresBlock,
    (SKILL_PATHS, None): SkillPath,
    (PROFILES, None): ProfileEntry,
    (PROFILES, None, "limits"): LimitsBlock,
}
"""By place, None for any key, the model of the mapping there."""


def _keys(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(field.alias or name for name, field in model.model_fields.items())
