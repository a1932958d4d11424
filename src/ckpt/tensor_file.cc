#include "ckpt/tensor_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/crc32c_combine.h"
#include "formats/safetensors.h"

namespace fourfold {
namespace {

constexpr std::string_view kCrcPrefix = "crc32c:";
constexpr std::size_t kWriteBytes = 8 << 20;
constexpr const char* kFileVersion = "1";  ///< Of tensor files; the manifest's is its own.
constexpr const char* kDamagedHint = "the file was changed or damaged; use another checkpoint";

/// Collects small pieces, so that the disk sees large aligned writes.
class AlignedWriter {
 public:
  explicit AlignedWriter(WritableFile& file)
      : file_(file),
        buffer_(static_cast<char*>(std::aligned_alloc(kDirectAlignment, kWriteBytes))) {
    if (!buffer_) throw std::bad_alloc();
  }

  void append(const void* data, std::size_t size) {
    const char* from = static_cast<const char*>(data);
    while (size > 0) {
      // What fills the buffer alone goes past it.
      const bool direct = used_ == 0 && size >= kWriteBytes;
      const std::size_t n = direct ? kWriteBytes : std::min(size, kWriteBytes - used_);
      if (direct) {
        file_.append(from, n);
      } else {
        std::memcpy(buffer_.get() + used_, from, n);
        used_ += n;
      }
      from += n;
      size -= n;
      if (used_ == kWriteBytes) flush();
    }
  }

  void flush() {
    if (used_ > 0) file_.append(buffer_.get(), used_);
    used_ = 0;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  WritableFile& file_;
  std::unique_ptr<char, Free> buffer_;
  std::size_t used_ = 0;
};

std::vector<SafetensorsEntry> entries_of(std::span<const RegionSource> regions) {
  std::vector<SafetensorsEntry> entries;
  for (const RegionSource& r : regions) {
    SafetensorsEntry entry;
    entry.name = r.key + r.region.name();
    entry.dtype = dtype_name(r.dtype);
    entry.shape = r.region.shape();
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// The inverse of a region's name; throws with the file's and the tensor's name.
StoredRegion parse_entry(const SafetensorsEntry& entry, const SafetensorsHeader& header,
                         const std::string& path) {
  const auto refuse = [&](const char* cause) {
    return Error(ErrorKind::kData, fmt::format("{}: {}: {}", path, entry.name, cause));
  };
  StoredRegion stored;
  const auto bracket = entry.name.rfind('[');
  const auto dtype = dtype_from_name(entry.dtype);
  if (bracket == std::string::npos || entry.name.find('@') >= bracket) {
    throw refuse("the name is not name@kind[region]");
  }
  if (!dtype) throw refuse("its dtype is none of a checkpoint's");
  auto region = Region::parse(std::string_view(entry.name).substr(bracket));
  if (!region || region->shape() != entry.shape) throw refuse("the region is not of its shape");
  stored.key = entry.name.substr(0, bracket);
  stored.dtype = *dtype;
  stored.region = std::move(*region);
  stored.offset = static_cast<std::int64_t>(header.data_start + entry.begin);
  stored.bytes = static_cast<std::int64_t>(entry.bytes());
  const auto crc = header.metadata.find(std::string(kCrcPrefix) + entry.name);
  if (crc == header.metadata.end()) throw refuse("has no checksum");
  const std::string& digits = crc->second;
  const auto end = digits.data() + digits.size();
  if (digits.size() != 8 || std::from_chars(digits.data(), end, stored.crc, 16).ptr != end) {
    throw refuse("its checksum is not eight hexadecimal digits");
  }
  return stored;
}

/// Cuts a region into boxes that are dense runs of it, each of at most `limit` elements, in the
/// order of the bytes.
class BoxCutter {
 public:
  BoxCutter(const Region& region, std::int64_t limit) : region_(region), at_(region) {
    // Dims after cut_dim_ stay whole: the largest tail that fits.
    std::int64_t tail = 1;
    cut_dim_ = region.dims.size();
    while (cut_dim_ > 0) {
      rows_ = std::max<std::int64_t>(1, limit / tail);
      const std::int64_t n = region.dims[cut_dim_ - 1].size();
      --cut_dim_;
      if (n > rows_) break;
      tail *= n;
    }
    for (std::size_t d = 0; d < cut_dim_; ++d) at_.dims[d].end = at_.dims[d].begin + 1;
    start_run();
  }

  const Region& box() const { return at_; }

  /// Steps on; false after the last box.
  bool next() {
    if (region_.dims.empty()) return false;
    if (at_.dims[cut_dim_].end < region_.dims[cut_dim_].end) {
      at_.dims[cut_dim_].begin = at_.dims[cut_dim_].end;
      set_run_end();
      return true;
    }
    start_run();
    for (std::size_t d = cut_dim_; d > 0; --d) {
      Range& r = at_.dims[d - 1];
      if (r.end < region_.dims[d - 1].end) {
        ++r.begin;
        ++r.end;
        return true;
      }
      r = {region_.dims[d - 1].begin, region_.dims[d - 1].begin + 1};
    }
    return false;
  }

 private:
  void start_run() {
    if (region_.dims.empty()) return;
    at_.dims[cut_dim_].begin = region_.dims[cut_dim_].begin;
    set_run_end();
  }
  void set_run_end() {
    Range& r = at_.dims[cut_dim_];
    r.end = r.begin + std::min(rows_, region_.dims[cut_dim_].end - r.begin);
  }

  const Region& region_;
  Region at_;
  std::size_t cut_dim_ = 0;
  std::int64_t rows_ = 1;
};

}  // namespace

std::map<std::string, std::string> tensor_file_metadata(Step step, int rank) {
  return {{"format", "fourfold"},
          {"version", kFileVersion},
          {"step", std::to_string(step.value)},
          {"rank", std::to_string(rank)}};
}

std::string tensor_file_header(std::span<const RegionSource> regions,
                               std::map<std::string, std::string> metadata,
                               std::span<const std::uint32_t> crcs) {
  auto entries = entries_of(regions);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    metadata[std::string(kCrcPrefix) + entries[i].name] = fmt::format("{:08x}", crcs[i]);
  }
  return build_safetensors_header(entries, metadata, kDirectAlignment);
}

FileRecord write_tensor_file(Fs& fs, const std::string& folder, const std::string& name,
                             std::span<const RegionSource> regions,
                             const std::map<std::string, std::string>& metadata) {
  const std::string path = join_path(folder, name), temporary = path + kTemporarySuffix;
  std::vector<std::uint32_t> crcs;
  for (const RegionSource& r : regions) crcs.push_back(crc32c(r.data, region_bytes(r)));
  const std::string header = tensor_file_header(regions, metadata, crcs);
  const auto file = fs.create(temporary);
  AlignedWriter writer(*file);
  writer.append(header.data(), header.size());
  FileRecord record{name, static_cast<std::int64_t>(header.size()), 0, 0};
  record.file_crc = record.header_crc = crc32c(header.data(), header.size());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::size_t bytes = region_bytes(regions[i]);
    writer.append(regions[i].data, bytes);
    record.size += static_cast<std::int64_t>(bytes);
    record.file_crc = crc32c_combine(record.file_crc, crcs[i], bytes);
  }
  writer.flush();
  file->sync();
  file->close();
  fs.rename(temporary, path);
  fs.sync_directory(folder);
  return record;
}

std::int64_t tensor_file_bytes(std::span<const RegionSource> regions,
                               const std::map<std::string, std::string>& metadata) {
  const std::vector<std::uint32_t> no_crcs(regions.size());
  auto bytes = static_cast<std::int64_t>(tensor_file_header(regions, metadata, no_crcs).size());
  for (const RegionSource& r : regions) bytes += static_cast<std::int64_t>(region_bytes(r));
  return bytes;
}

TensorFile::TensorFile(const Fs& fs, const std::string& folder, const FileRecord& record)
    : path_(join_path(folder, record.name)), file_(fs.open(path_)) {
  if (file_->size() != record.size) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} has {} bytes, the manifest says {}", path_, file_->size(), record.size),
        kDamagedHint);
  }
  const auto size = static_cast<std::uint64_t>(record.size);
  std::byte first[kSafetensorsLengthBytes] = {};
  file_->read(0, first, std::min<std::size_t>(sizeof(first), size));
  const std::uint64_t length = parse_safetensors_length(first, size, path_).value();
  std::string json(length, '\0');
  file_->read(kSafetensorsLengthBytes, json.data(), json.size());
  const std::uint32_t crc = crc32c(json.data(), json.size(), crc32c(first, sizeof(first)));
  if (crc != record.header_crc) {
    throw Error(ErrorKind::kData, path_ + ": the checksum of its header is wrong", kDamagedHint);
  }
  const SafetensorsHeader header = parse_safetensors_header(json, size, path_).value();
  for (const SafetensorsEntry& entry : header.tensors) {
    regions_.push_back(parse_entry(entry, header, path_));
  }
}

void TensorFile::read(const StoredRegion& region, const BoxSink& sink) const {
  std::uint32_t crc = 0;
  if (region.bytes > 0) {
    const std::int64_t element = dtype_size(region.dtype);
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(region.bytes, kBoxBytes)));
    BoxCutter boxes(region.region, kBoxBytes / element);
    std::int64_t offset = region.offset;
    do {
      const auto bytes = static_cast<std::size_t>(boxes.box().elements() * element);
      file_->read(offset, buffer.data(), bytes);
      crc = crc32c(buffer.data(), bytes, crc);
      sink(boxes.box(), buffer.data());
      offset += static_cast<std::int64_t>(bytes);
    } while (boxes.next());
    FF_CHECK(offset == region.offset + region.bytes, "{} was cut wrongly", region.name());
  }
  if (crc != region.crc) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: {}: the checksum of its data is wrong", path_, region.name()),
                kDamagedHint);
  }
}

}  // namespace fourfold
