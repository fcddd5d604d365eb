"""A help desk as an MCP server on stdio: customers, orders and cases in an SQLite file.

`--moods FOLDER` is for tests: a tool fails while there is a file `TOOL.fails` in it, with what the file says, and hangs
while there is a file `TOOL.hangs`. Every call is a row of the table `call`, from its beginning.
"""

import argparse
import json
import sqlite3
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from platformdirs import user_cache_path
from pydantic import BaseModel

TABLES = """
CREATE TABLE IF NOT EXISTS customer (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, plan TEXT NOT NULL, city TEXT NOT NULL,
    timezone TEXT NOT NULL, repository TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS purchase (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer, item TEXT NOT NULL,
    price REAL NOT NULL, status TEXT NOT NULL, whereabouts TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS cases (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer, subject TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'open', opened TEXT NOT NULL, closed TEXT, resolution TEXT
);
CREATE TABLE IF NOT EXISTS note (
    id INTEGER PRIMARY KEY, case_id INTEGER NOT NULL REFERENCES cases, at TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS call (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, outcome TEXT NOT NULL
);
"""
CUSTOMERS = (
    (1, "Ada Brandt", "ada@shop.example", "team", "Berlin", "Europe/Berlin"),
    (2, "Ben Okafor", "ben@shop.example", "free", "Lagos", "Africa/Lagos"),
    (3, "Chiyo Mori", "chiyo@shop.example", "business", "Osaka", "Asia/Tokyo"),
)
PURCHASES = (
    (11, 1, "Keyboard", 89.0, "delivered", "handed over in Berlin"),
    (12, 1, "Headset", 139.5, "late", "waiting at the depot in Leipzig"),
    (13, 1, "Webcam", 59.0, "late", "being looked for in Hanover"),
    (21, 2, "Mouse", 25.0, "shipped", "on its way to Lagos"),
    (31, 3, "Display", 420.0, "delivered", "handed over in Osaka"),
)

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
SETTLES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


class Customer(BaseModel):
    id: int
    name: str
    email: str
    plan: str
    city: str
    timezone: str
    repository: str


class Order(BaseModel):
    id: int
    item: str
    price: float
    status: str


class Orders(BaseModel):
    orders: list[Order]


class Whereabouts(BaseModel):
    order_id: int
    item: str
    whereabouts: str


class Case(BaseModel):
    id: int
    customer_id: int
    subject: str
    status: Literal["open", "closed"]
    opened: str
    closed: str | None
    resolution: str | None


class Note(BaseModel):
    id: int
    case_id: int
    at: str
    text: str


class Notes(BaseModel):
    notes: list[Note]


class Refund(BaseModel):
    order_id: int
    amount: float


class Answer(BaseModel):
    answer: str


class Desk:
    """What the tools do. Tools are called side by side, in threads: each has a connection to the file of its own."""

    def __init__(self, database: Path) -> None:
        self._database = database

    @contextmanager
    def rows(self) -> Generator[sqlite3.Connection]:
        """The file, in a transaction that ends with the block."""
        with closing(sqlite3.connect(self._database, timeout=10)) as rows, rows:
            rows.row_factory = sqlite3.Row
            yield rows

    def prepare(self, repository: Path, *, seed: bool) -> None:
        """Make the tables that are not there, and with `seed` some customers where there are none."""
        with self.rows() as rows:
            rows.executescript(TABLES)
            rows.execute("BEGIN IMMEDIATE")  # another desk may begin at the same time
            if seed and rows.execute("SELECT count(*) FROM customer").fetchone()[0] == 0:
                here = [(*customer, str(repository)) for customer in CUSTOMERS]
                rows.executemany("INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?)", here)
                rows.executemany("INSERT INTO purchase VALUES (?, ?, ?, ?, ?, ?)", PURCHASES)

    # --- tools ---

    def find_customer(self, email: str) -> Customer:
        """Find a customer by e-mail address."""
        with self.rows() as rows:
            found = rows.execute("SELECT * FROM customer WHERE email = ?", (email,)).fetchone()
        if found is None:
            raise ToolError(f"no customer has the address {email}")
        return Customer(**found)

    def list_orders(self, customer_id: int) -> Orders:
        """A customer's orders."""
        with self.rows() as rows:
            self._customer(rows, customer_id)
            query = "SELECT id, item, price, status FROM purchase WHERE customer_id = ? ORDER BY id"
            return Orders(orders=[Order(**row) for row in rows.execute(query, (customer_id,))])

    def track_order(self, order_id: int) -> Whereabouts:
        """Where an order is."""
        with self.rows() as rows:
            query = "SELECT id AS order_id, item, whereabouts FROM purchase WHERE id = ?"
            found = rows.execute(query, (order_id,)).fetchone()
        if found is None:
            raise ToolError(f"there is no order {order_id}")
        return Whereabouts(**found)

    def recent_notes(self, customer_id: int) -> Notes:
        """The newest ten notes on a customer's cases, the newest first."""
        query = """SELECT note.* FROM note JOIN cases ON cases.id = case_id WHERE customer_id = ?
            ORDER BY note.id DESC LIMIT 10"""
        with self.rows() as rows:
            self._customer(rows, customer_id)
            return Notes(notes=[Note(**row) for row in rows.execute(query, (customer_id,))])

    def open_case(self, customer_id: int, subject: str) -> Case:
        """Open a case for a customer."""
        with self.rows() as rows:
            self._customer(rows, customer_id)
            query = "INSERT INTO cases (customer_id, subject, opened) VALUES (?, ?, ?)"
            made = rows.execute(query, (customer_id, subject, _now())).lastrowid
            return self._case(rows, made)

    def add_note(self, case_id: int, text: str) -> Note:
        """Write a note on an open case."""
        with self.rows() as rows:
            if self._case(rows, case_id).status != "open":
                raise ToolError(f"case {case_id} is closed")
            at = _now()
            made = rows.execute("INSERT INTO note (case_id, at, text) VALUES (?, ?, ?)", (case_id, at, text)).lastrowid
        return Note(id=made or 0, case_id=case_id, at=at, text=text)

    def close_case(self, case_id: int, resolution: str) -> Case:
        """Close a case; of one that is closed nothing changes."""
        query = """UPDATE cases SET status = 'closed', closed = ?, resolution = ?
            WHERE id = ? AND status = 'open'"""
        with self.rows() as rows:
            rows.execute(query, (_now(), resolution, case_id))
            return self._case(rows, case_id)

    def refund(self, customer_id: int, order_id: int) -> Refund:
        """Give a customer the money for an order back, once."""
        with self.rows() as rows:
            query = "SELECT * FROM purchase WHERE id = ? AND customer_id = ?"
            found = rows.execute(query, (order_id, customer_id)).fetchone()
            if found is None:
                raise ToolError(f"customer {customer_id} has no order {order_id}")
            rows.execute("UPDATE purchase SET status = 'refunded' WHERE id = ?", (order_id,))
        return Refund(order_id=order_id, amount=found["price"])

    @staticmethod
    def _customer(rows: sqlite3.Connection, customer_id: int) -> None:
        if rows.execute("SELECT 1 FROM customer WHERE id = ?", (customer_id,)).fetchone() is None:
            raise ToolError(f"there is no customer {customer_id}")

    @staticmethod
    def _case(rows: sqlite3.Connection, case_id: int | None) -> Case:
        found = rows.execute("SELECT * FROM cases WHERE id = ?", (case_id,)).fetchone()
        if found is None:
            raise ToolError(f"there is no case {case_id}")
        return Case(**found)


def question_of(question: str) -> Elicit[Answer]:
    return Elicit(question, Answer)


def ask_agent(question: str, answer: Annotated[Answer, Resolve(question_of)]) -> Answer:
    """Ask the person at the client something."""
    return answer


class Moods:
    """A middleware: writes calls down, and has tools fail or hang as the files in a folder say."""

    def __init__(self, desk: Desk, folder: Path | None) -> None:
        self._desk = desk
        self._folder = folder

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call" or ctx.params is None:
            return await call_next(ctx)
        tool = str(ctx.params["name"])
        call = self._begun(tool, ctx.params.get("arguments"))
        outcome = "cancelled"
        try:
            reason = await self._mood(tool)
            result = await call_next(ctx) if reason is None else _failure(reason)
            outcome = "failed" if isinstance(result, Mapping) and result.get("isError") else "done"
            return result
        finally:
            self._ended(call, outcome)

    async def _mood(self, tool: str) -> str | None:
        """Wait while the tool hangs; why it fails, None where it does not."""
        if self._folder is None:
            return None
        hangs, fails = self._folder / f"{tool}.hangs", self._folder / f"{tool}.fails"
        while hangs.exists():  # noqa: ASYNC110 - another process takes the file away
            await anyio.sleep(0.01)
        return fails.read_text(encoding="utf-8") if fails.exists() else None

    def _begun(self, tool: str, arguments: object) -> int | None:
        with self._desk.rows() as rows:
            query = "INSERT INTO call (at, tool, arguments, outcome) VALUES (?, ?, ?, 'begun')"
            return rows.execute(query, (_now(), tool, json.dumps(arguments))).lastrowid

    def _ended(self, call: int | None, outcome: str) -> None:
        with self._desk.rows() as rows:
            rows.execute("UPDATE call SET outcome = ? WHERE id = ?", (outcome, call))


def _failure(reason: str) -> dict[str, Any]:
    result = CallToolResult(content=[TextContent(type="text", text=reason)], is_error=True)
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def server(desk: Desk, moods: Path | None) -> MCPServer:
    """The server, with every tool of the desk."""
    made = MCPServer("help-desk", version="1", subscriptions=False, log_level="WARNING")
    for tool, annotations in (
        (desk.find_customer, READS),
        (desk.list_orders, READS),
        (desk.track_order, READS),
        (desk.recent_notes, READS),
        (desk.open_case, ADDS),
        (desk.add_note, ADDS),
        (desk.close_case, SETTLES),
        (desk.refund, DESTROYS),
        (ask_agent, READS),
    ):
        made.add_tool(tool, annotations=annotations)
    made.middleware.append(Moods(desk, moods))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="A help desk as an MCP server on stdio.")
    parser.add_argument("database", nargs="?", default="", help="SQLite file; without it one in your cache folder")
    parser.add_argument("--seed", action="store_true", help="begin with some customers where there are none")
    parser.add_argument("--repository", type=Path, default=Path(), help="theirs (default: the current folder)")
    parser.add_argument("--moods", type=Path, metavar="FOLDER", help="tells which tools fail or hang; for tests")
    options = parser.parse_args()
    database = Path(options.database or user_cache_path("mcp-skill-proxy") / "help-desk.db")
    desk = Desk(database)
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        desk.prepare(options.repository.resolve(), seed=options.seed)
    except (OSError, sqlite3.Error) as error:
        sys.exit(f"{database}: {error}")
    server(desk, options.moods).run()


if __name__ == "__main__":
    main()
