#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ckpt/state.h"

namespace fourfold {

inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kConfigName = "config.toml";
/// A manifest is at most this long: about 500,000 tensors.
inline constexpr std::int64_t kMaxManifestBytes = 64 << 20;

/// A file of a checkpoint, by its name in the checkpoint's folder.
struct FileRecord {
  std::string name;
  std::int64_t size = 0;
  std::uint32_t header_crc = 0;  ///< Of length and JSON of a safetensors file; else 0.
  std::uint32_t file_crc = 0;    ///< Of all bytes.
};

/// A tensor@kind that a checkpoint holds: whole, once, in whatever regions.
struct ManifestTensor {
  std::string name;
  std::string kind;
  DType dtype = DType::kF32;
  TensorClass cls = TensorClass::kDense;
  std::vector<std::int64_t> shape;
  std::string key() const { return name + "@" + kind; }
};

/// What makes a folder of files a checkpoint. It names no regions, so its length does not grow with
/// the number of regions that a tensor is cut into.
struct Manifest {
  CheckpointId id;
  CheckpointMeta meta;  ///< config_toml is empty: it is a file of its own.
  std::vector<FileRecord> files;
  std::vector<ManifestTensor> tensors;
};

/// JSON, a line per file and tensor; the last member is the CRC-32C of all text before it. Throws
/// Error where it would be longer than kMaxManifestBytes.
std::string manifest_text(const Manifest& manifest);

/// Reads manifest_text. Damaged, of a newer version, or with a value that cannot be (a file name
/// that leaves the folder, a tensor twice, a shape that overflows): an Error with the cause.
/// Members that it does not know are passed over.
Result<Manifest> parse_manifest(std::string_view text);

/// "step-00000200 1a2b3c4d\n": the name of a folder with its CRC, the content of CURRENT.
std::string current_text(const CheckpointId& id);
Result<CheckpointId> parse_current(std::string_view text);

}  // namespace fourfold
