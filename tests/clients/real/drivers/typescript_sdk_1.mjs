// @modelcontextprotocol/sdk 1.x, with its own refreshing of changed lists.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { command, converse, url } from "./agent_loop.mjs";

let tools = [];
const onChanged = (error, changed) => { if (!error) tools = changed; };
const client = new Client({ name: "typescript-sdk-1", version: "1" }, { listChanged: { tools: { onChanged } } });
const [program, ...args] = command;
await client.connect(
  url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command: program, args }),
);
({ tools } = await client.listTools());
await converse(
  () => tools,
  async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
);
await client.close();
