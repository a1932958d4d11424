#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ckpt/state.h"

namespace fourfold {

/// The newest version of the format. A manifest is of the oldest that can say what it says: of 1
/// where no tensor rotates.
inline constexpr int kCheckpointVersion = 2;
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

/// A tensor@kind of a checkpoint: whole, once, in whatever regions.
struct ManifestTensor {
  std::string name;
  std::string kind;
  DType dtype = DType::kF32;
  TensorClass cls = TensorClass::kDense;
  std::vector<std::int64_t> shape;
  /// The checkpoint in whose expert files it lies: this one or one that it refers to. None: it does
  /// not rotate and lies in this one's dense files.
  std::optional<CheckpointId> version = {};
  std::string key() const { return name + "@" + kind; }
};

/// An older checkpoint that holds tensors of another: the folder of its id beside the other's. It
/// may be a checkpoint no more, when only what is referred to is left of it.
struct ReferredCheckpoint {
  CheckpointId id;
  GridShape grid;  ///< That wrote it, with the order of its ranks and ZeRO (CheckpointMeta).
  std::string order;
  int zero = 0;
  std::vector<FileRecord> files;  ///< Its expert files, all of them.
};

/// What makes a folder of files a checkpoint. It names no regions, so its length does not grow with
/// the number of regions that a tensor is cut into.
struct Manifest {
  CheckpointId id;
  CheckpointMeta meta;  ///< config_toml is empty: it is a file of its own.
  std::vector<FileRecord> files;
  std::vector<ManifestTensor> tensors;
  /// Each older checkpoint that a tensor's version names, oldest first. Those hold the bytes
  /// themselves: there are no references to references.
  std::vector<ReferredCheckpoint> referred = {};
};

/// JSON, a line per file and tensor; the last member is the CRC-32C of all text before it. Throws
/// Error where it would be longer than kMaxManifestBytes, or where parse_manifest would refuse what
/// it refers to.
std::string manifest_text(const Manifest& manifest);

/// Reads manifest_text. Damaged, of a newer version, or with a value that cannot be (a file name
/// that leaves the folder, a tensor twice, a shape that overflows, a reference to itself or to a
/// newer checkpoint): an Error with the cause.
/// Members that it does not know are passed over.
Result<Manifest> parse_manifest(std::string_view text);

/// "step-00000200 1a2b3c4d\n": the name of a folder with its CRC, the content of CURRENT.
std::string current_text(const CheckpointId& id);
Result<CheckpointId> parse_current(std::string_view text);

}  // namespace fourfold
