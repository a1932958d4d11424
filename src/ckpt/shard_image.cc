#include "ckpt/shard_image.h"

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/crc32c_combine.h"

namespace fourfold {
FileRecord fill_image(std::span<const RegionSource> regions,
                      const std::map<std::string, std::string>& metadata, const std::string& name,
                      std::byte* image) {
  std::vector<std::uint32_t> crcs(regions.size());
  const std::size_t header_bytes = tensor_file_header(regions, metadata, crcs).size();
  std::byte* at = image + header_bytes;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::size_t bytes = region_bytes(regions[i]);
    crcs[i] = copy_with_crc32c(at, regions[i].data, bytes);
    at += bytes;
  }
  const std::string header = tensor_file_header(regions, metadata, crcs);
  FF_CHECK(header.size() == header_bytes, "{} and {}", header.size(), header_bytes);
  std::memcpy(image, header.data(), header.size());
  FileRecord record{name, at - image, 0, 0};
  record.file_crc = record.header_crc = crc32c(header.data(), header.size());
  for (std::size_t i = 0; i < regions.size(); ++i) {
    record.file_crc = crc32c_combine(record.file_crc, crcs[i], region_bytes(regions[i]));
  }
  return record;
}

void write_image(Fs& fs, const std::string& folder, const FileRecord& record,
                 const std::byte* image) {
  const std::string path = join_path(folder, record.name), temporary = path + kTemporarySuffix;
  const auto file = fs.create(temporary);
  file->append(image, static_cast<std::size_t>(record.size));
  file->sync();
  file->close();
  fs.rename(temporary, path);
  fs.sync_directory(folder);
}

}  // namespace fourfold
