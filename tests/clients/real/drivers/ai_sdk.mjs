// Vercel AI SDK: the tools are taken once for each of the user's turns, as its documentation has it.
import { createMCPClient } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs } from "ai";
import { command, model, prompts, url } from "./agent_loop.mjs";

const [program, ...args] = command;
const transport = url ? { type: "http", url } : new StdioTransport({ command: program, args });
const client = await createMCPClient({ transport });
const scripted = createOpenAICompatible({ name: "scripted", baseURL: model, apiKey: "dummy" })("scripted");
const messages = [];
for (const prompt of prompts) {
  messages.push({ role: "user", content: prompt });
  const tools = await client.tools();
  const done = await generateText({ model: scripted, tools, stopWhen: stepCountIs(10), messages });
  messages.push(...done.response.messages);
  console.log(done.text);
}
await client.close();
