// @modelcontextprotocol/sdk 1.x, with its own refreshing of changed lists.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { play } from "./agent_loop.mjs";

await play(
  (onChanged) => new Client({ name: "typescript-sdk-1", version: "1" }, { listChanged: { tools: { onChanged } } }),
  StdioClientTransport,
  StreamableHTTPClientTransport,
);
