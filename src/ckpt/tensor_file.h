#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "layout/region.h"

namespace fourfold {

// A rank's file of regions: a safetensors file whose tensors are named "name@kind[a:b,c:d]", with
// the CRC-32C of each region in its metadata ("crc32c:name@kind[a:b,c:d]": "1a2b3c4d").

/// A region to be written, and where its bytes are.
struct RegionSource {
  std::string key;  ///< "name@kind".
  DType dtype = DType::kF32;
  Region region;
  const void* data = nullptr;  ///< Dense and row-major.
};

/// The bytes of a region.
inline std::size_t region_bytes(const RegionSource& region) {
  return static_cast<std::size_t>(region.region.elements() * dtype_size(region.dtype));
}

/// What the file of a rank says of itself beside its regions.
std::map<std::string, std::string> tensor_file_metadata(Step step, int rank);

/// The bytes that open a file of these regions (their `data` is not looked at); crcs[i] is that of
/// regions[i]. Their length does not depend on the CRCs.
std::string tensor_file_header(std::span<const RegionSource> regions,
                               std::map<std::string, std::string> metadata,
                               std::span<const std::uint32_t> crcs);

/// Writes folder/name under a temporary name, syncs it, renames it and syncs the folder. The bytes
/// must not change meanwhile.
FileRecord write_tensor_file(Fs& fs, const std::string& folder, const std::string& name,
                             std::span<const RegionSource> regions,
                             const std::map<std::string, std::string>& metadata);

/// Bytes of the file that write_tensor_file would write.
std::int64_t tensor_file_bytes(std::span<const RegionSource> regions,
                               const std::map<std::string, std::string>& metadata);

/// A region that a file holds.
struct StoredRegion {
  std::string key;  ///< "name@kind".
  DType dtype = DType::kF32;
  Region region;
  std::int64_t offset = 0;  ///< In the file.
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;
  /// "name@kind[a:b,c:d]".
  std::string name() const { return key + region.name(); }
};

/// An open file of regions, its size and header checked against the manifest's record. All calls
/// throw Error (kData) that names the file, and the tensor where it is one's.
class TensorFile {
 public:
  TensorFile(const Fs& fs, const std::string& folder, const FileRecord& record);

  const std::vector<StoredRegion>& regions() const { return regions_; }

  /// Receives a box of the region (global indices) and its bytes, dense and row-major.
  using BoxSink = std::function<void(const Region& box, const std::byte* data)>;
  /// Hands the region over in boxes of at most kBoxBytes, in order, then checks its CRC: what was
  /// handed over counts only if this returns.
  void read(const StoredRegion& region, const BoxSink& sink) const;

  static constexpr std::int64_t kBoxBytes = 4 << 20;

 private:
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  std::vector<StoredRegion> regions_;
};

}  // namespace fourfold
