// The plainest agent: asks the model, calls what it says, and goes on until it answers with a text.

export const command = JSON.parse(process.env.MCP_COMMAND);
export const url = process.env.MCP_URL;
export const model = `${process.env.MODEL_URL}/v1`;
export const prompts = process.argv.slice(2);

async function ask(messages, tools) {
  const functions = tools.map(({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: inputSchema },
  }));
  const answer = await fetch(`${model}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "scripted", messages, tools: functions }),
  });
  return (await answer.json()).choices[0].message;
}

// Plays the story by an SDK's client that reads changed lists by itself; `make` gets what it is to call with them.
export async function play(make, Stdio, StreamableHttp) {
  let tools = [];
  const client = make((error, changed) => { if (!error) tools = changed; });
  const [program, ...args] = command;
  await client.connect(url ? new StreamableHttp(new URL(url)) : new Stdio({ command: program, args }));
  ({ tools } = await client.listTools());
  await converse(
    () => tools,
    async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
  );
  await client.close();
}

// `tools` gives the tools for each request to the model, `call` the result of one as text.
export async function converse(tools, call) {
  const messages = [];
  for (const prompt of prompts) {
    messages.push({ role: "user", content: prompt });
    let said;
    do {
      said = await ask(messages, tools());
      messages.push(said);
      for (const { id, function: made } of said.tool_calls ?? []) {
        const content = await call(made.name, JSON.parse(made.arguments));
        messages.push({ role: "tool", tool_call_id: id, content });
      }
    } while (said.tool_calls);
    console.log(said.content);
  }
}
