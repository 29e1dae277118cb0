// What is asked of the server. Every failure is an Error with a sentence that a person can read.

async function refusal(answer) {
  try {
    return (await answer.json()).error || answer.statusText;
  } catch {
    return answer.statusText;
  }
}

async function ask(path, body, signal) {
  let answer;
  try {
    const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    answer = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer.");
  }
  if (!answer.ok) throw new Error(await refusal(answer));
  return answer;
}

export async function models() {
  return (await ask("/api/models")).json();
}

export async function attention(body, signal) {
  return (await ask("/api/attention", body, signal)).json();
}

export function pictureAddress({ ids, ...rest }) {
  const words = new URLSearchParams(rest);
  for (const id of ids) words.append("ids", id);
  return `/api/attention.png?${words}`;
}

// Yields each line of the stream as a value: the plan, then sentences.
export async function* translate(body, signal) {
  const answer = await ask("/api/translate/stream", body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let whole = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      if (message.error) throw new Error(message.error);
      whole = whole || message.done === true;
      yield message;
    }
  }
  if (!whole) throw new Error("The server broke off.");
}
