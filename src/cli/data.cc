#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/runtime_library.h"

namespace fourfold::cli {
namespace {

Command tokenizer_command() {
  auto o = std::make_shared<TrainTokenizerOptions>();
  return {
      "data tokenizer",
      "trains a tokenizer on text",
      "Trains a byte-level BPE and writes it as a tokenizer.json that Hugging Face's tokenizers "
      "read too. The same text gives the same tokenizer.",
      {
          {"--input", "FILES", "text files, or .jsonl with a \"text\" member in each line",
           &o->inputs, true, 0, 0, true},
          {"--vocab", "N", "entries (tokens), bytes and special ones included", &o->vocab_size,
           true, 257, 1e7},
          {"--output", "FILE", "the tokenizer.json to write", &o->output, true},
      },
      {"fourfold data tokenizer --input data/kjv.txt --vocab 4096 --output data/tokenizer.json"},
      [o] { return call_runtime("fourfold_data_tokenizer", *o); }};
}

Command prepare_command() {
  auto o = std::make_shared<PrepareDataOptions>();
  return {
      "data prepare",
      "turns text into token files",
      "Writes PREFIX.bin and PREFIX.idx in Megatron's format. With --valid-fraction a share of the "
      "documents is held out: PREFIX-train and PREFIX-valid. A .txt file is one document; of "
      "fewer than 100 documents the last part of the text is held out, cut at a line end.",
      {
          {"--input", "FILES", "text files, or .jsonl with a \"text\" member in each line",
           &o->inputs, true, 0, 0, true},
          {"--tokenizer", "FILE", "a tokenizer.json", &o->tokenizer, true},
          {"--output", "PREFIX", "path of the token files without .bin and .idx", &o->output, true},
          {"--valid-fraction", "F", "share that is held out", &o->valid_fraction, false, 0, 0.99},
      },
      {"fourfold data prepare --input data/kjv.txt --tokenizer data/tokenizer.json \\",
       "    --output data/kjv --valid-fraction 0.05"},
      [o] { return call_runtime("fourfold_data_prepare", *o); }};
}

Command show_command() {
  auto o = std::make_shared<ShowDataOptions>();
  return {"data show",
          "says what a token file holds",
          "Prints documents, tokens and type of a token file and the start of its text.",
          {
              {"PREFIX", "", "path of the token files without .bin and .idx", &o->prefix, true},
              {"--tokenizer", "FILE", "a tokenizer.json, to print tokens as text", &o->tokenizer,
               false, 0, 0, false, "tokens are printed as numbers"},
              {"--tokens", "N", "tokens of the start that are printed", &o->tokens, false, 0, 1e6},
          },
          {"fourfold data show data/kjv-train --tokenizer data/tokenizer.json"},
          [o] { return call_runtime("fourfold_data_show", *o); }};
}

}  // namespace

std::vector<Command> data_command_lines() {
  return {tokenizer_command(), prepare_command(), show_command()};
}

}  // namespace fourfold::cli
