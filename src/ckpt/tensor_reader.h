#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/file_set.h"
#include "ckpt/manifest.h"
#include "ckpt/tensor_file.h"

namespace fourfold {

/// A checkpoint read tensor by tensor, wherever they lie, in one process: for work on checkpoints
/// without a model.
/// Memory: the headers of all files, and the tensor that is being read.
class TensorReader {
 public:
  /// Reads the headers of all files; `fs` outlives this. Throws Error (kData) that names the file
  /// or tensor that is damaged, or not covered exactly once.
  TensorReader(const Fs& fs, std::string folder, Manifest manifest);
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  const std::string& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// Null where the checkpoint has no such tensor.
  const ManifestTensor* find(const std::string& key) const;

  /// Makes `out` the whole of a tensor of the manifest, dense and row-major, all its checksums
  /// checked. Throws Error (kData) that names file and tensor.
  void read(const ManifestTensor& tensor, std::vector<std::byte>& out);

 private:
  struct Piece {
    std::size_t file = 0;  ///< Index into files_.
    StoredRegion region;
  };
  struct Held {
    const ManifestTensor* tensor = nullptr;
    std::vector<Piece> pieces;
  };
  struct NamedFile {
    std::string folder;
    FileRecord record;
  };
  void add_files(const FileSet& set);
  void add_regions(const FileSet& set, std::size_t index);
  const TensorFile& file(std::size_t index);

  const Fs& fs_;
  std::string folder_;
  Manifest manifest_;
  std::vector<NamedFile> files_;
  std::unordered_map<std::string, Held> held_;  ///< By key.
  std::map<std::size_t, std::unique_ptr<TensorFile>> open_;
};

}  // namespace fourfold
