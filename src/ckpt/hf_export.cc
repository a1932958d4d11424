#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/dtype.h"
#include "base/units.h"
#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/hf_convert.h"
#include "ckpt/hf_tensors.h"
#include "ckpt/tensor_reader.h"
#include "formats/file_io.h"
#include "formats/hf_weights.h"
#include "formats/tokenizer_json.h"
#include "spec/counts.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

namespace files = std::filesystem;

/// The folder that is being written, under another name until it is whole.
class NewFolder {
 public:
  explicit NewFolder(std::string path) : path_(std::move(path)) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
    temporary_ = path_ + kTemporarySuffix;
    std::error_code failed;
    if (files::exists(path_, failed) && !files::is_empty(path_, failed)) {
      throw Error(ErrorKind::kUsage, path_ + " is there and not empty", "choose another folder");
    }
    if (files::exists(temporary_, failed)) {
      throw Error(ErrorKind::kUsage, temporary_ + " is there: an export under way, or cut off",
                  "remove it if no export is running");
    }
    files::create_directories(temporary_, failed);
    if (failed) throw fs_error(failed.value(), "make", temporary_);
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    if (!finished_) files::remove_all(temporary_, ignored);
  }

  const std::string& temporary() const { return temporary_; }
  const std::string& path() const { return path_; }
  std::string file(const char* name) const { return join_path(temporary_, name); }

  void require_space(std::uint64_t bytes) const {
    std::error_code failed;
    const auto space = files::space(temporary_, failed);
    if (failed || space.available >= bytes) return;
    throw fs_error(ENOSPC, "export to", path_, static_cast<std::int64_t>(bytes),
                   static_cast<std::int64_t>(space.available));
  }

  void finish() {
    std::error_code failed;
    files::rename(temporary_, path_, failed);
    if (failed) throw fs_error(failed.value(), "rename to", path_);
    finished_ = true;
  }

 private:
  std::string path_, temporary_;
  bool finished_ = false;
};

/// Masters of a checkpoint as tensors of a Hugging Face folder.
class Exporter {
 public:
  Exporter(const Fs& fs, FoundCheckpoint found, const ModelSpec& model, HfFamily family)
      : tensors_(hf_tensors(model, family)),
        reader_(fs, std::move(found.folder), std::move(found.manifest)) {
    for (const HfTensor& tensor : tensors_) {
      for (const std::string& part : tensor.parts) check(part, tensor.part_shape);
    }
  }

  std::vector<SafetensorsEntry> entries(DType dtype) const {
    std::vector<SafetensorsEntry> entries;
    for (const HfTensor& t : tensors_) {
      entries.push_back(
          {.name = t.name, .dtype = std::string(dtype_name(dtype)), .shape = t.shape});
    }
    return entries;
  }

  std::vector<std::byte> data(std::size_t index, DType dtype) {
    const HfTensor& tensor = tensors_[index];
    std::vector<std::byte> whole(count_of(tensor.shape) * sizeof(float));
    for (std::size_t i = 0; i < tensor.parts.size(); ++i) {
      reader_.read(*reader_.find(tensor.parts[i] + "@" + kKindMaster), stored_);
      put_hf_part(tensor, i, floats_of(stored_), floats_of(whole));
    }
    if (dtype == DType::kF32) return whole;
    const auto values = floats_of(whole);
    std::vector<std::byte> rounded(values.size() * sizeof(std::uint16_t));
    std::transform(values.begin(), values.end(), reinterpret_cast<std::uint16_t*>(rounded.data()),
                   float_to_bf16);
    return rounded;
  }

 private:
  static std::size_t count_of(const std::vector<std::int64_t>& shape) {
    return static_cast<std::size_t>(Region::whole(shape).elements());
  }

  void check(const std::string& name, const std::vector<std::int64_t>& shape) const {
    const ManifestTensor* found = reader_.find(name + "@" + kKindMaster);
    if (found && found->dtype == DType::kF32 && found->shape == shape) return;
    throw Error(ErrorKind::kData,
                fmt::format("{}: {} is {}", reader_.folder(), name,
                            found ? "of another shape than the model of its configuration"
                                  : "not in the checkpoint"),
                "`fourfold ckpt show` lists what it holds");
  }

  std::vector<HfTensor> tensors_;
  TensorReader reader_;
  std::vector<std::byte> stored_;
};

/// The tokenizer that a run names, if it can be had.
struct RunTokenizer {
  std::string text;  ///< tokenizer.json; empty: none.
  std::optional<std::int32_t> end_of_text;
  std::string end_text;  ///< "<|endoftext|>".
  std::string note;      ///< For people.
};

RunTokenizer find_tokenizer(const std::string& path) {
  constexpr std::uint64_t kMaxBytes = 256 << 20;
  RunTokenizer tokenizer;
  if (path.empty()) {
    tokenizer.note = "no tokenizer: the run names none (data.tokenizer)";
    return tokenizer;
  }
  auto text = read_text_file(path, kMaxBytes);
  if (!text) {
    tokenizer.note = fmt::format("no tokenizer: {}", text.error().what());
    return tokenizer;
  }
  const auto model = parse_tokenizer_json(text.value(), path);
  if (!model) {
    tokenizer.note = fmt::format("no tokenizer: {}", model.error().what());
    return tokenizer;
  }
  tokenizer.text = std::move(text).value();
  tokenizer.end_of_text = model.value().end_of_text();
  for (const AddedToken& token : model.value().added) {
    if (token.id == tokenizer.end_of_text) tokenizer.end_text = token.content;
  }
  tokenizer.note = "tokenizer " + path;
  return tokenizer;
}

/// What AutoTokenizer wants beside tokenizer.json.
std::string tokenizer_config_text(const RunTokenizer& tokenizer, std::int64_t seq_len) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"model_max_length", seq_len},
                                   {"clean_up_tokenization_spaces", false}};
  if (!tokenizer.end_text.empty()) {
    config["bos_token"] = config["eos_token"] = tokenizer.end_text;
  }
  return config.dump(2) + "\n";
}

}  // namespace

std::string export_hf(const Fs& fs, const std::string& checkpoint, const std::string& out,
                      const HfExportOptions& options) {
  FoundCheckpoint found = find_checkpoint(fs, checkpoint).value();
  const std::string config = read_config(fs, found.folder, found.manifest).value();
  const RunSpec run = parse_run(config, join_path(found.folder, kConfigName)).value();
  const HfFamily family = hf_family_of(run.model).value();
  const std::int64_t step = found.manifest.id.step.value;
  const std::int64_t parameters = count_parameters(run.model).total();
  const std::string from = found.folder;
  Exporter exporter(fs, std::move(found), run.model, family);

  NewFolder folder(out);
  folder.require_space(static_cast<std::uint64_t>(parameters * dtype_size(options.dtype)));
  const auto names =
      write_hf_weights(folder.temporary(), exporter.entries(options.dtype), options.max_shard_bytes,
                       [&](std::size_t tensor) { return exporter.data(tensor, options.dtype); });
  const RunTokenizer tokenizer = find_tokenizer(run.data.tokenizer);
  if (!tokenizer.text.empty()) {
    write_text_file(folder.file("tokenizer.json"), tokenizer.text);
    write_text_file(folder.file("tokenizer_config.json"),
                    tokenizer_config_text(tokenizer, run.model.seq_len));
  }
  write_text_file(folder.file("generation_config.json"),
                  hf_generation_config_text(tokenizer.end_of_text));
  write_text_file(folder.file("config.json"),
                  hf_config_text(run.model, family, options.dtype, tokenizer.end_of_text));
  folder.finish();
  return fmt::format("exported {} (step {}) as {}, {} parameters in {}\n{}\nfolder {}\n", from,
                     step, hf_family_name(family), format_count(parameters),
                     dtype_name(options.dtype), tokenizer.note, folder.path());
}

}  // namespace fourfold
