// Lists the calls that openapi.json describes.

function element(tag, text, ...children) {
  const created = document.createElement(tag);
  if (text) created.textContent = text;
  created.append(...children);
  return created;
}

function typeOf(schema, all) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((each) => typeOf(each, all)).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items || schema.prefixItems?.[0] || {}, all)}`;
  return schema.type || "object";
}

function fields(name, all) {
  const list = element("dl");
  for (const [field, schema] of Object.entries(all[name]?.properties || {})) {
    list.append(element("dt", "", element("code", field), ` ${typeOf(schema, all)}`), element("dd", schema.description || ""));
  }
  return list;
}

const example = document.querySelector("pre");
example.textContent = example.textContent.replace("http://127.0.0.1:8765", location.origin);

const api = await (await fetch("/openapi.json")).json();
const all = api.components.schemas;
for (const [path, calls] of Object.entries(api.paths)) {
  for (const [method, call] of Object.entries(calls)) {
    const section = element("section", "", element("h2", "", element("code", `${method.toUpperCase()} ${path}`)), element("p", call.description));
    const body = call.requestBody?.content["application/json"].schema.$ref?.split("/").pop();
    if (body) section.append(element("h3", body), fields(body, all));
    const schema = call.responses["200"].content?.["application/json"]?.schema || {};
    const answer = (schema.$ref || schema.items?.$ref)?.split("/").pop();
    if (answer) section.append(element("h3", `Response: ${typeOf(schema, all)}`), fields(answer, all));
    document.getElementById("calls").append(section);
  }
}
