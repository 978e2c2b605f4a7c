// Starts `kvp lsp` for .kvp files. Highlighting needs none of this, and stays where the server cannot be started.
"use strict";

const vscode = require("vscode");

let client;

function activate(context) {
  let node;
  try {
    node = require("vscode-languageclient/node");
  } catch {
    vscode.window.showWarningMessage(`kvp: run "npm install" in ${context.extensionPath} to start the language server.`);
    return undefined;
  }
  const command = vscode.workspace.getConfiguration("kvp").get("command") || "kvp";
  const server = { command, args: ["lsp"], transport: node.TransportKind.stdio };
  const options = { documentSelector: [{ language: "kvp" }] };
  client = new node.LanguageClient("kvp", "kvp", server, options);
  return client.start();
}

function deactivate() {
  return client ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
