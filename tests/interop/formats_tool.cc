// What tests/interop/formats_test.py drives: our readers and writers on files of its choice.
#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/commands.h"
#include "data/data_set.h"
#include "data/tokenizer.h"
#include "formats/safetensors.h"
#include "formats/tensorboard.h"

namespace fourfold {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
void write_file(const std::string& path, const std::vector<T>& values) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

/// Texts lie one after another, each behind its length in bytes (u32).
std::vector<std::string> read_texts(const std::string& path) {
  const std::string all = read_file(path);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at + 4 <= all.size();) {
    std::uint32_t size = 0;
    all.copy(reinterpret_cast<char*>(&size), 4, at);
    texts.push_back(all.substr(at + 4, size));
    at += 4 + size;
  }
  return texts;
}

/// Tokens of each text behind their number (i32).
void encode(const std::string& tokenizer_path, const std::string& in, const std::string& out) {
  const Tokenizer tokenizer = Tokenizer::open(tokenizer_path).value();
  bool strips = false;  // Stripping tokens swallow white space, so that decode cannot undo it.
  for (const auto& token : tokenizer.model().added) strips |= token.lstrip || token.rstrip;
  std::vector<std::int32_t> all;
  for (const std::string& text : read_texts(in)) {
    const auto tokens = tokenizer.encode(text);
    if (!strips && tokenizer.decode(std::span<const std::int32_t>(tokens)) != text) {
      throw Error(ErrorKind::kInternal, "decode does not undo encode");
    }
    all.push_back(static_cast<std::int32_t>(tokens.size()));
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  write_file(out, all);
}

/// Reads a safetensors file and writes its tensors into another.
void copy_safetensors(const std::string& in, const std::string& out) {
  const auto file = SafetensorsFile::open(in).value();
  std::vector<std::string> bytes;
  std::vector<const void*> data;
  for (const auto& tensor : file.header().tensors) {
    bytes.emplace_back(tensor.bytes(), '\0');
    (void)file.read(tensor, bytes.back().data()).value();
  }
  for (const auto& tensor : bytes) data.push_back(tensor.data());
  write_safetensors_file(out, file.header().tensors, data, file.header().metadata);
}

void write_events(const std::string& folder) {
  TensorBoardWriter writer(folder);
  for (int step = 0; step < 5; ++step) {
    writer.add_scalar("loss", step, 2.5 / (step + 1), 1000.0 + step);
  }
}

int run(const std::vector<std::string>& args) {
  const Log log([](LogLevel, std::string_view text) { fmt::print("{}\n", text); });
  const std::string& command = args.at(0);
  if (command == "tokenizer") {
    train_tokenizer({.inputs = {args.at(1)},
                     .output = args.at(3),
                     .vocab_size = std::stoi(args.at(2)),
                     .pattern = static_cast<TokenizerPattern>(std::stoi(args.at(4)))},
                    log);
  } else if (command == "rewrite") {
    write_tokenizer_json(args.at(2), read_tokenizer_json(args.at(1)).value());
  } else if (command == "encode") {
    encode(args.at(1), args.at(2), args.at(3));
  } else if (command == "prepare") {
    prepare_data({.inputs = {args.at(1)},
                  .tokenizer = args.at(2),
                  .output = args.at(3),
                  .valid_fraction = std::stod(args.at(4))},
                 log);
  } else if (command == "show") {
    fmt::print("{}", show_data({.prefix = args.at(1), .tokenizer = args.at(2)}));
  } else if (command == "safetensors") {
    copy_safetensors(args.at(1), args.at(2));
  } else if (command == "events") {
    write_events(args.at(1));
  } else {
    throw Error(ErrorKind::kUsage, "unknown command " + command);
  }
  return 0;
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) {
  try {
    return fourfold::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const fourfold::Error& error) {
    fmt::print(stderr, "{}\nhint: {}\n", error.what(), error.hint());
    return error.exit_code();
  }
}
