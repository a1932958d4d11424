#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

namespace fourfold {

// The weights of a Hugging Face model folder: model.safetensors, or shards
// model-00001-of-0000n.safetensors and model.safetensors.index.json, which says where each tensor
// is.

/// A folder's weights, opened: headers are in memory, data are read on demand.
class HfWeights {
 public:
  /// Refused (kData): no weights in this format, an index that is damaged, names files outside the
  /// folder or tensors that are not there, a tensor in two files.
  static Result<HfWeights> open(const std::string& folder);

  /// Names of all tensors, in no order.
  std::vector<std::string> names() const;
  /// Null where there is none of that name.
  const SafetensorsEntry* find(const std::string& name) const;
  /// Reads the bytes of find(name), which is not null.
  Status read(const std::string& name, std::span<std::byte> out) const;

 private:
  struct Place {
    std::size_t file = 0;
    std::size_t tensor = 0;  ///< In the file's header.
  };
  Status add_file(const std::string& path);

  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, Place> places_;
};

/// Gives the bytes of the tensor of this index; asked for once each, in order.
using HfTensorData = std::function<std::vector<std::byte>(std::size_t tensor)>;

/// Writes tensors (name, dtype, shape) as the weights of a folder that exists. A file takes tensors
/// in their order as long as it holds no more than `max_shard_bytes` of data, and at least one;
/// with one file there is no index. Returns the names of the files. Throws Error.
std::vector<std::string> write_hf_weights(const std::string& folder,
                                          std::span<const SafetensorsEntry> tensors,
                                          std::uint64_t max_shard_bytes, const HfTensorData& data);

}  // namespace fourfold
