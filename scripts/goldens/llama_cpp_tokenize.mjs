// Second reference: llama.cpp's own tokenizer through the npm package node-llama-cpp.
// node llama_cpp_tokenize.mjs vocab.gguf < texts.json > ids.json: [[ordinary ids, ids with special tokens parsed], …]
import { readFileSync } from "node:fs";
import { getLlama } from "node-llama-cpp";

const texts = JSON.parse(readFileSync(0, "utf8"));
const llama = await getLlama({ gpu: false, build: "never", progressLogs: false, logLevel: "error" });
const model = await llama.loadModel({ modelPath: process.argv[2], vocabOnly: true });
const ids = texts.map((text) => [model.tokenize(text, false), model.tokenize(text, true)]);
process.stdout.write(JSON.stringify(ids), () => process.exit(0));
