#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "base/dtype.h"
#include "base/float16.h"
#include "base/units.h"
#include "ckpt/hf_convert.h"
#include "ckpt/hf_tensors.h"
#include "ckpt/new_run.h"
#include "formats/file_io.h"
#include "formats/hf_weights.h"
#include "formats/tokenizer_json.h"
#include "spec/counts.h"
#include "spec/model_identity.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

constexpr std::uint64_t kMaxConfigBytes = 1 << 20;
constexpr std::uint64_t kMaxTokenizerBytes = 256 << 20;

std::size_t count_of(const std::vector<std::int64_t>& shape) {
  return static_cast<std::size_t>(Region::whole(shape).elements());
}

/// Elements of a tensor that is stored in 16 bits as f32, exactly.
void widen(const std::string& dtype, const std::vector<std::byte>& stored, std::span<float> out) {
  const auto convert = dtype == "F16" ? half_to_float : bf16_to_float;
  const auto* bits = reinterpret_cast<const std::uint16_t*>(stored.data());
  std::transform(bits, bits + out.size(), out.begin(), convert);
}

/// The tensors of a model folder, checked against the model, as parameters.
class Importer {
 public:
  Importer(const std::string& folder, const ModelSpec& model, HfFamily family)
      : folder_(folder), weights_(HfWeights::open(folder).value()) {
    tensors_ = hf_tensors(model, family);
    const auto stored = names_in_files(model, family);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const HfTensor& tensor = tensors_[i];
      const auto found = stored.find(bare_hf_name(tensor.name, family));
      if (found == stored.end()) {
        throw refused(tensor.name + " is missing", "the folder is not whole, or not of its config");
      }
      check(found->second, tensor);
      stored_names_.push_back(found->second);
      for (std::size_t part = 0; part < tensor.parts.size(); ++part) {
        places_[tensor.parts[part]] = {i, part};
      }
    }
    if (stored.size() != tensors_.size()) throw unknown(stored, family);
  }

  /// A parameter in f32, whose size `out` has.
  void read(const std::string& name, std::span<float> out) {
    const auto [index, part] = places_.at(name);
    load(index);
    take_hf_part(tensors_[index], part, floats_of(whole_), out);
  }

 private:
  /// Names in the files by bare name, without what is passed over.
  using Stored = std::map<std::string, std::string>;

  Stored names_in_files(const ModelSpec& model, HfFamily family) const {
    Stored stored;
    for (const std::string& name : weights_.names()) {
      const std::string bare = bare_hf_name(name, family);
      if (is_ignored_hf_tensor(bare, model, family)) continue;
      const auto [at, added] = stored.emplace(bare, name);
      if (!added) throw refused(fmt::format("{} and {} are the same", name, at->second), "");
    }
    return stored;
  }

  Error refused(const std::string& cause, const std::string& hint) const {
    return Error(ErrorKind::kData, fmt::format("{}: {}", folder_, cause),
                 hint.empty() ? "fetch or save the model folder again" : hint);
  }

  Error unknown(const Stored& stored, HfFamily family) const {
    for (const auto& [bare, name] : stored) {
      const auto same = [&](const HfTensor& t) { return bare_hf_name(t.name, family) == bare; };
      if (std::none_of(tensors_.begin(), tensors_.end(), same)) {
        return refused(name + " has no place in the model of its config.json",
                       "docs/cookbook.md says which models can be imported");
      }
    }
    return refused("holds other tensors than its config.json says", "");
  }

  void check(const std::string& name, const HfTensor& tensor) const {
    const SafetensorsEntry& entry = *weights_.find(name);
    if (entry.shape != tensor.shape) {
      throw refused(fmt::format("{} is [{}], its config.json says [{}]", name,
                                fmt::join(entry.shape, ", "), fmt::join(tensor.shape, ", ")),
                    "weights and config.json are of different models");
    }
    if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") {
      throw refused(fmt::format("{} is of type {}", name, entry.dtype),
                    "F32, BF16 and F16 can be imported; quantized weights cannot");
    }
  }

  /// Parts of one tensor are asked for one after the other: it is kept.
  void load(std::size_t index) {
    if (loaded_ == index) return;
    const SafetensorsEntry& entry = *weights_.find(stored_names_[index]);
    const std::string& name = stored_names_[index];
    loaded_.reset();
    whole_.resize(count_of(entry.shape) * sizeof(float));
    if (entry.dtype == dtype_name(DType::kF32)) {
      weights_.read(name, whole_).value();
    } else {
      stored_.resize(entry.bytes());
      weights_.read(name, stored_).value();
      widen(entry.dtype, stored_, floats_of(whole_));
    }
    loaded_ = index;
  }

  std::string folder_;
  HfWeights weights_;
  std::vector<HfTensor> tensors_;
  std::vector<std::string> stored_names_;  ///< In the files, in the order of tensors_.
  std::map<std::string, std::pair<std::size_t, std::size_t>> places_;  ///< Tensor and part.
  std::optional<std::size_t> loaded_;
  std::vector<std::byte> stored_;  ///< As it is in the file, where that is not f32.
  std::vector<std::byte> whole_;   ///< In f32.
};

/// The tokenizer of a model folder, where it is one that fourfold reads.
struct FolderTokenizer {
  std::string text;  ///< Empty: none.
  std::string note;  ///< For people.
};

FolderTokenizer find_tokenizer(const std::string& folder) {
  const std::string path = join_path(folder, "tokenizer.json");
  auto text = read_text_file(path, kMaxTokenizerBytes);
  if (!text) return {"", fmt::format("no tokenizer: {}", text.error().what())};
  const auto model = parse_tokenizer_json(text.value(), path);
  if (!model) return {"", fmt::format("no tokenizer: {}", model.error().what())};
  return {std::move(text).value(), "tokenizer " + path};
}

/// A run that goes on from the model: valid, with placeholders where only its user knows.
RunSpec make_run(const NewRun& place, const ModelSpec& model, const std::string& config_path,
                 bool tokenizer, const std::vector<std::string>& overrides) {
  constexpr std::int64_t kSteps = 1000, kGlobalBatch = 8;
  RunSpec run;
  run.dir = place.dir;
  run.model = model;
  run.train.steps = kSteps;
  run.train.global_batch = kGlobalBatch;
  run.train.micro_batch = 1;
  run.train.seq_len = model.seq_len;
  if (tokenizer) run.data.tokenizer = join_path(place.dir, "tokenizer.json");
  // Training sequences are as long as the model's, also where that is made shorter here.
  constexpr std::string_view kModelLength = "model.seq_len=";
  std::vector<std::string> all = overrides;
  for (const std::string& text : overrides) {
    if (text.starts_with(kModelLength)) {
      all.insert(all.begin(), "train.seq_len=" + text.substr(kModelLength.size()));
    }
  }
  return parse_run(resolved_toml(run), config_path + " as a run file", all).value();
}

/// Gives masters, and moments of zeros.
TensorSource source_of(Importer& importer) {
  return [&importer](const ManifestTensor& tensor, std::vector<std::byte>& out) {
    out.resize(count_of(tensor.shape) * sizeof(float));
    if (tensor.kind == kKindMaster) {
      importer.read(tensor.name, floats_of(out));
    } else {
      std::fill(out.begin(), out.end(), std::byte{0});
    }
  };
}

}  // namespace

std::string import_hf(Fs& fs, const std::string& folder, const std::string& out,
                      const std::vector<std::string>& overrides) {
  const NewRun place = new_run(fs, out);
  const std::string config_path = join_path(folder, "config.json");
  const std::string config = read_text_file(config_path, kMaxConfigBytes).value();
  const ModelSpec model = parse_hf_config(config, config_path).value();
  const FolderTokenizer tokenizer = find_tokenizer(folder);
  const RunSpec run = make_run(place, model, config_path, !tokenizer.text.empty(), overrides);
  const HfFamily family = hf_family_of(run.model).value();
  Importer importer(folder, run.model, family);

  const std::string checkpoint = write_offline(fs, place.checkpoints(), new_run_meta(run),
                                               new_run_state(run.model), source_of(importer));
  if (!tokenizer.text.empty()) {
    write_file_atomically(fs, join_path(place.dir, "tokenizer.json"), tokenizer.text);
  }
  write_file_atomically(fs, place.run_file(), resolved_toml(run));
  return fmt::format(
      "imported {} from {}\n{}\ncheckpoint {}\nrun file {}: give it data and a number of steps, "
      "then `fourfold train {}`\n",
      model_name(run.model), folder, tokenizer.note, checkpoint, place.run_file(),
      place.run_file());
}

}  // namespace fourfold
