// Calls of the API. Every failure throws an Error whose message is a sentence for the user.

async function call(path, body, signal) {
  let answer;
  try {
    const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    answer = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; check that repro serve still runs.");
  }
  if (!answer.ok) {
    const error = (await answer.json().catch(() => null))?.error; // a proxy's error page is no JSON
    throw new Error(error || answer.statusText);
  }
  return answer;
}

export async function models() {
  return (await call("/api/models")).json();
}

export async function attention(body, signal) {
  return (await call("/api/attention", body, signal)).json();
}

// Yield each line of the stream: the plan, then the sentences, then the end.
export async function* translate(body, signal) {
  const answer = await call("/api/translate/stream", body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let complete = false;
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      return { done: true }; // the connection was lost
    });
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      if (message.error) throw new Error(message.error);
      complete = complete || message.done === true;
      yield message;
    }
  }
  if (!complete) throw new Error("The server ended before the translation was complete; try again.");
}
