#include "ckpt/shard_image.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/crc32c_combine.h"

namespace fourfold {
namespace {

/// What a thread copies at once.
constexpr std::size_t kPieceBytes = 2 << 20;

struct Piece {
  std::size_t region, begin, bytes;
  std::byte* to;
  std::uint32_t crc = 0;
};

}  // namespace

FileRecord fill_image(std::span<const RegionSource> regions,
                      const std::map<std::string, std::string>& metadata, const std::string& name,
                      std::byte* image, WorkShare& share) {
  std::vector<std::uint32_t> crcs(regions.size());
  const std::size_t header_bytes = tensor_file_header(regions, metadata, crcs).size();
  std::vector<Piece> pieces;
  std::byte* to = image + header_bytes;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const std::size_t bytes = region_bytes(regions[i]);
    for (std::size_t begin = 0; begin < bytes; begin += kPieceBytes) {
      pieces.push_back({i, begin, std::min(kPieceBytes, bytes - begin), to + begin});
    }
    to += bytes;
  }
  share.run(pieces.size(), [&](std::size_t i) {
    Piece& piece = pieces[i];
    const auto* from = static_cast<const std::byte*>(regions[piece.region].data) + piece.begin;
    piece.crc = copy_with_crc32c(piece.to, from, piece.bytes);
  });
  for (const Piece& piece : pieces) {
    std::uint32_t& crc = crcs[piece.region];
    crc = crc32c_combine(crc, piece.crc, piece.bytes);
  }
  const std::string header = tensor_file_header(regions, metadata, crcs);
  FF_CHECK(header.size() == header_bytes, "{} and {}", header.size(), header_bytes);
  std::memcpy(image, header.data(), header.size());
  FileRecord record{name, to - image, 0, 0};
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
