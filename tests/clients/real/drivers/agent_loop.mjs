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
