#include "formats/hf_weights.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"

namespace fourfold {
namespace {

constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 64 << 20;

bool is_file(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed);
}

Error damaged_index(const std::string& path, const std::string& cause) {
  return Error(ErrorKind::kData, fmt::format("{}: {}", path, cause),
               "fetch or export the folder again");
}

Error no_weights(const std::string& folder) {
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed)) {
    return Error(ErrorKind::kData, folder + " is not a folder",
                 "name a Hugging Face model folder on this machine");
  }
  return Error(ErrorKind::kData,
               fmt::format("{} has neither {} nor {}", folder, kSingleName, kIndexName),
               "save the model as safetensors: save_pretrained(..., safe_serialization=True)");
}

/// Which file each tensor is in.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_index(const std::string& path) {
  const auto text = read_text_file(path, kMaxIndexBytes);
  if (!text) return text.error();
  const auto json = nlohmann::json::parse(text.value(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return damaged_index(path, "not a JSON object");
  const auto found = json.find("weight_map");
  if (found == json.end() || !found->is_object() || found->empty()) {
    return damaged_index(path, "has no weight_map");
  }
  WeightMap map;
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string()) return damaged_index(path, name + ": its file is no name");
    const auto& file_name = file.get_ref<const std::string&>();
    const bool inside = !file_name.empty() && file_name[0] != '.' &&
                        file_name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!inside) return damaged_index(path, name + ": its file lies outside the folder");
    map.emplace(name, file_name);
  }
  return map;
}

std::uint64_t bytes_of(const SafetensorsEntry& tensor) {
  auto bits = static_cast<std::uint64_t>(safetensors_dtype_bits(tensor.dtype));
  for (const std::int64_t n : tensor.shape) bits *= static_cast<std::uint64_t>(n);
  return bits / 8;
}

/// Tensors [begin, end) of one file.
struct Shard {
  std::size_t begin = 0, end = 0;
};

std::vector<Shard> plan_shards(std::span<const SafetensorsEntry> tensors, std::uint64_t limit) {
  std::vector<Shard> shards{{0, 0}};
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = bytes_of(tensors[i]);
    const bool empty = shards.back().begin == i;
    if (!empty && (bytes > limit || held > limit - bytes)) {
      shards.push_back({i, i});
      held = 0;
    }
    held += bytes;
    shards.back().end = i + 1;
  }
  return shards;
}

void write_shard(const std::string& path, std::span<const SafetensorsEntry> tensors,
                 std::size_t first, const HfTensorData& data) {
  std::vector<SafetensorsEntry> entries(tensors.begin(), tensors.end());
  AtomicFile file(path);
  file.write(build_safetensors_header(entries, {{"format", "pt"}}));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::vector<std::byte> bytes = data(first + i);
    FF_CHECK(bytes.size() == entries[i].bytes(), "{}: {} bytes", entries[i].name, bytes.size());
    file.write(bytes.data(), bytes.size());
  }
  file.commit();
}

}  // namespace

Result<HfWeights> HfWeights::open(const std::string& folder) {
  HfWeights weights;
  const std::string single = folder + "/" + kSingleName, index = folder + "/" + kIndexName;
  if (is_file(single)) {
    if (const Status added = weights.add_file(single); !added) return added.error();
    return weights;
  }
  if (!is_file(index)) return no_weights(folder);
  const auto map = read_index(index);
  if (!map) return map.error();
  std::set<std::string> names;
  for (const auto& [tensor, file] : map.value()) names.insert(file);
  for (const std::string& name : names) {
    if (const Status added = weights.add_file(folder + "/" + name); !added) return added.error();
  }
  for (const auto& [tensor, file] : map.value()) {
    const auto found = weights.places_.find(tensor);
    if (found == weights.places_.end() ||
        weights.files_[found->second.file].path() != folder + "/" + file) {
      return damaged_index(index, fmt::format("{} is not in {}", tensor, file));
    }
  }
  return weights;
}

Status HfWeights::add_file(const std::string& path) {
  auto file = SafetensorsFile::open(path);
  if (!file) return file.error();
  const auto& tensors = file.value().header().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto [at, added] = places_.emplace(tensors[i].name, Place{files_.size(), i});
    if (!added) {
      return Error(ErrorKind::kData,
                   fmt::format("{}: {} is also in {}", path, tensors[i].name,
                               files_[at->second.file].path()),
                   "remove the shards of another export");
    }
  }
  files_.push_back(std::move(file).value());
  return Done{};
}

std::vector<std::string> HfWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const SafetensorsEntry* HfWeights::find(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  return &files_[found->second.file].header().tensors[found->second.tensor];
}

Status HfWeights::read(const std::string& name, std::span<std::byte> out) const {
  const SafetensorsEntry* tensor = find(name);
  FF_CHECK(tensor && tensor->bytes() == out.size(), "{}", name);
  return files_[places_.at(name).file].read(*tensor, out.data());
}

std::vector<std::string> write_hf_weights(const std::string& folder,
                                          std::span<const SafetensorsEntry> tensors,
                                          std::uint64_t max_shard_bytes, const HfTensorData& data) {
  const std::vector<Shard> shards = plan_shards(tensors, max_shard_bytes);
  std::vector<std::string> names;
  nlohmann::json map = nlohmann::json::object();
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const auto [begin, end] = shards[s];
    names.push_back(shards.size() == 1
                        ? kSingleName
                        : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size()));
    write_shard(folder + "/" + names.back(), tensors.subspan(begin, end - begin), begin, data);
    for (std::size_t i = begin; i < end; ++i) {
      map[tensors[i].name] = names.back();
      total += bytes_of(tensors[i]);
    }
  }
  if (shards.size() == 1) return names;
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_text_file(folder + "/" + kIndexName, index.dump(2) + "\n");
  names.emplace_back(kIndexName);
  return names;
}

}  // namespace fourfold
