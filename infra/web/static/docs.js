// The calls as openapi.json describes them.

function made(tag, text, ...children) {
  const element = document.createElement(tag);
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

function typeOf(schema, all) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((each) => typeOf(each, all)).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items || schema.prefixItems?.[0] || {}, all)}`;
  return schema.type || "object";
}

function fields(name, all) {
  const list = made("dl");
  for (const [field, schema] of Object.entries(all[name]?.properties || {})) {
    list.append(made("dt", "", made("code", field), ` ${typeOf(schema, all)}`), made("dd", schema.description || ""));
  }
  return list;
}

const told = await (await fetch("/openapi.json")).json();
const all = told.components.schemas;
for (const [path, calls] of Object.entries(told.paths)) {
  for (const [method, call] of Object.entries(calls)) {
    const section = made("section", "", made("h2", "", made("code", `${method.toUpperCase()} ${path}`)), made("p", call.description));
    const body = call.requestBody?.content["application/json"].schema.$ref?.split("/").pop();
    if (body) section.append(made("h3", body), fields(body, all));
    if (call.parameters) {
      const list = made("dl");
      for (const each of call.parameters) {
        list.append(made("dt", "", made("code", each.name), ` ${typeOf(each.schema, all)}`), made("dd", each.description || ""));
      }
      section.append(list);
    }
    const schema = call.responses["200"].content?.["application/json"]?.schema || {};
    const answer = (schema.$ref || schema.items?.$ref)?.split("/").pop();
    if (answer) section.append(made("h3", `Answer: ${typeOf(schema, all)}`), fields(answer, all));
    document.getElementById("calls").append(section);
  }
}
