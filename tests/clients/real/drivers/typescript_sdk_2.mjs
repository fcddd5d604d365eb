// @modelcontextprotocol/client 2.x, with its own refreshing of changed lists.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { play } from "./agent_loop.mjs";

await play(
  (onChanged) => new Client(
    { name: "typescript-sdk-2", version: "1" },
    { versionNegotiation: { mode: "auto" }, listChanged: { tools: { onChanged } } },
  ),
  StdioClientTransport,
  StreamableHTTPClientTransport,
);
