// Tokens of the texts on the standard input under the TextMate grammar, by the engine that VS Code has.
// node tokenize.js MODULES GRAMMAR < [{"name": …, "text": …}]  →  {"name": [[line, start, end, "scope"], …]}
const fs = require("fs");
const path = require("path");
const [modules, grammarPath] = process.argv.slice(2);
const textmate = require(path.join(modules, "vscode-textmate"));
const oniguruma = require(path.join(modules, "vscode-oniguruma"));
const wasm = fs.readFileSync(path.join(modules, "vscode-oniguruma", "release", "onig.wasm")).buffer;

async function main() {
  await oniguruma.loadWASM(wasm);
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (sources) => new oniguruma.OnigScanner(sources),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(grammarPath, "utf8"), grammarPath),
  });
  const grammar = await registry.loadGrammar("source.kvp");
  const answer = {};
  for (const { name, text } of JSON.parse(fs.readFileSync(0, "utf8"))) {
    let stack = textmate.INITIAL;
    answer[name] = [];
    text.split("\n").forEach((line, number) => {
      const made = grammar.tokenizeLine(line, stack);
      stack = made.ruleStack;
      for (const token of made.tokens) {
        answer[name].push([number, token.startIndex, token.endIndex, token.scopes[token.scopes.length - 1]]);
      }
    });
  }
  process.stdout.write(JSON.stringify(answer));
}

main();
