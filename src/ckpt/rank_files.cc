#include "ckpt/rank_files.h"

#include "base/crc32c.h"
#include "ckpt/file_names.h"
#include "ckpt/shard_image.h"

namespace fourfold {
namespace {

/// Where the expert file begins in an image whose dense file has so many bytes.
std::int64_t expert_offset(std::int64_t dense_bytes) {
  constexpr auto kAlignment = static_cast<std::int64_t>(kDirectAlignment);
  return (dense_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_image(const FileRecord& record, const std::byte* image) {
  return crc32c(image, static_cast<std::size_t>(record.size)) == record.file_crc;
}

}  // namespace

RankRecords write_rank_files(Fs& fs, const std::string& folder, const RankContent& content) {
  const auto metadata = tensor_file_metadata(content.step, content.rank);
  RankRecords records{
      write_tensor_file(fs, folder, dense_file_name(content.rank), content.dense, metadata),
      std::nullopt};
  if (!content.expert.empty()) {
    records.expert =
        write_tensor_file(fs, folder, expert_file_name(content.rank), content.expert, metadata);
  }
  return records;
}

std::int64_t rank_image_bytes(const RankContent& content) {
  const auto metadata = tensor_file_metadata(content.step, content.rank);
  const std::int64_t dense = tensor_file_bytes(content.dense, metadata);
  if (content.expert.empty()) return dense;
  return expert_offset(dense) + tensor_file_bytes(content.expert, metadata);
}

std::int64_t rank_image_bytes(const RankRecords& records) {
  if (!records.expert) return records.dense.size;
  return expert_offset(records.dense.size) + records.expert->size;
}

RankRecords fill_rank_image(const RankContent& content, std::byte* image, WorkShare& share) {
  const auto metadata = tensor_file_metadata(content.step, content.rank);
  RankRecords records{
      fill_image(content.dense, metadata, dense_file_name(content.rank), image, share),
      std::nullopt};
  if (!content.expert.empty()) {
    records.expert = fill_image(content.expert, metadata, expert_file_name(content.rank),
                                image + expert_offset(records.dense.size), share);
  }
  return records;
}

void write_rank_image(Fs& fs, const std::string& folder, const RankRecords& records,
                      const std::byte* image) {
  write_image(fs, folder, records.dense, image);
  if (records.expert) {
    write_image(fs, folder, *records.expert, image + expert_offset(records.dense.size));
  }
}

bool is_rank_image(const RankRecords& records, const std::byte* image) {
  return is_image(records.dense, image) &&
         (!records.expert || is_image(*records.expert, image + expert_offset(records.dense.size)));
}

}  // namespace fourfold
