// The rules of a tree-sitter grammar.js as JSON: its functions build trees, as tree-sitter's own evaluation does.
const path = require("path");
const rule = (value) => (typeof value === "string" ? { type: "STRING", value } : value instanceof RegExp ? { type: "PATTERN", value: value.source } : value);
global.seq = (...members) => ({ type: "SEQ", members: members.map(rule) });
global.choice = (...members) => ({ type: "CHOICE", members: members.map(rule) });
global.repeat = (content) => ({ type: "REPEAT", content: rule(content) });
global.repeat1 = (content) => ({ type: "REPEAT1", content: rule(content) });
global.optional = (content) => ({ type: "OPTIONAL", content: rule(content) });
global.token = (content) => ({ type: "TOKEN", content: rule(content) });
global.prec = (value, content) => rule(content);
global.grammar = (described) => {
  const symbols = new Proxy({}, { get: (_, name) => ({ type: "SYMBOL", name }) });
  const rules = {};
  for (const [name, body] of Object.entries(described.rules)) rules[name] = rule(body(symbols));
  return { name: described.name, word: described.word(symbols).name, rules };
};
process.stdout.write(JSON.stringify(require(path.resolve(process.argv[2]))));
