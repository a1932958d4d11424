#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/file_io.h"

namespace fourfold {

// The safetensors format: a little-endian u64 N, N bytes of JSON, then the tensors' bytes without a
// gap, row-major and little-endian (https://github.com/huggingface/safetensors, "Format").

/// The JSON header is at most this long.
inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;
/// Bytes of the length before the JSON header.
inline constexpr std::uint64_t kSafetensorsLengthBytes = 8;

struct SafetensorsEntry {
  std::string name{};
  std::string dtype{};  ///< The format's name: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape{};
  std::uint64_t begin = 0;  ///< First byte, counted from the start of the data.
  std::uint64_t end = 0;    ///< One past the last byte.

  std::uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors;  ///< In the order of their bytes.
  std::map<std::string, std::string> metadata;
  std::uint64_t data_start = 0;  ///< First byte of the data in the file: 8 + N.
  std::uint64_t data_bytes = 0;

  std::uint64_t file_bytes() const { return data_start + data_bytes; }
  /// Null where there is none of that name. Linear; who asks often keeps an index.
  const SafetensorsEntry* find(std::string_view name) const;
};

/// Bits of an element; 0 for a name that the format does not have.
int safetensors_dtype_bits(std::string_view dtype);

/// The length N that the first 8 bytes of a file state, checked against the file's size and the
/// format's limit. `file` stands in messages.
Result<std::uint64_t> parse_safetensors_length(std::span<const std::byte> first_bytes,
                                               std::uint64_t file_bytes, std::string_view file);

/// Reads the N bytes of JSON of a file of `file_bytes` bytes. Refused, with the tensor's name: a
/// duplicate key, an unknown dtype or member, a shape or offset that is no non-negative integer or
/// overflows, offsets that disagree with dtype and shape, gaps, overlaps, and data that do not end
/// with the file. Memory is bounded by a small multiple of N.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::uint64_t file_bytes,
                                                   std::string_view file);

/// The bytes that open a file: length and JSON, padded with spaces to a multiple of `alignment`
/// bytes, where the tensors' bytes then begin. Tensors stand in the order given; their `begin` and
/// `end` are set. Throws Error where a name is given twice or is not UTF-8, or a dtype or size is
/// impossible. The length depends only on names, shapes and the metadata's characters, so a header
/// can be reserved first and written when checksums of a fixed width are known.
std::string build_safetensors_header(std::vector<SafetensorsEntry>& tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     std::size_t alignment = 8);

/// A file by path: its header, and its tensors' bytes on demand.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  /// Reads a tensor of this file into `out`, which holds tensor.bytes() bytes.
  Status read(const SafetensorsEntry& tensor, void* out) const;

 private:
  std::string path_;
  FileHandle file_;
  SafetensorsHeader header_;
};

/// Writes a whole file atomically; data[i] points at the bytes of tensors[i]. Throws Error.
void write_safetensors_file(const std::string& path, std::vector<SafetensorsEntry> tensors,
                            const std::vector<const void*>& data,
                            const std::map<std::string, std::string>& metadata);

}  // namespace fourfold
