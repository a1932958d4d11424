#include "ckpt/save_agreement.h"

#include <fmt/core.h>

#include <limits>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/philox.h"
#include "ckpt/agree.h"
#include "policy/save_plan.h"

namespace fourfold {
namespace {

/// A multiplier of a tensor, so that sums over tensors tell which elements they are of.
std::uint64_t weight_of(const std::string& key) {
  const std::uint32_t crc = crc32c(key.data(), key.size());
  const auto bits = philox4x32({crc, static_cast<std::uint32_t>(key.size()), 0, 0}, {0, 0});
  return (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1] | 1u;
}

/// What a rank says of itself before it writes: a few numbers, however much it writes.
struct Announcement {
  std::int64_t list = 0;      ///< A hash of the tensors' list: equal on all ranks.
  std::int64_t bytes = 0;     ///< Of its file.
  std::int64_t covered = 0;   ///< Elements written, each times its tensor's weight, modulo 2^64.
  std::int64_t expected = 0;  ///< The same of whole tensors: equal on all ranks.
};

std::vector<SaveItem> items_of(std::span<const StateTensor> tensors) {
  std::vector<SaveItem> items;
  for (const StateTensor& t : tensors) {
    items.push_back({t.key(), t.region, dtype_size(t.dtype), t.replica, t.replicas, t.replica_set});
  }
  return items;
}

/// Finds the pieces that this rank writes, with their place in memory: whole rows of a region.
void find_sources(std::span<const StateTensor> tensors, SaveAgreement& agreement) {
  const auto items = items_of(tensors);
  for (const SavePiece& piece : plan_save(items)) {
    const StateTensor& t = tensors[piece.item];
    FF_CHECK(t.data && t.region.dims.size() == t.shape.size(), "{}", t.key());
    std::int64_t offset = 0;
    if (!t.region.dims.empty()) {
      const std::int64_t row = t.region.elements() / t.region.dims[0].size();
      offset = (piece.region.dims[0].begin - t.region.dims[0].begin) * row * dtype_size(t.dtype);
    }
    RegionSource source{t.key(), t.dtype, piece.region, static_cast<const char*>(t.data) + offset};
    if (t.rotates) {
      agreement.rotating.push_back({piece.item, std::move(source)});
    } else {
      agreement.dense.push_back(std::move(source));
    }
  }
}

/// Of this rank's files.
std::int64_t file_bytes(const SaveAgreement& agreement, int rank) {
  // The longest number of a step stands for the one to come.
  const auto metadata = tensor_file_metadata(Step(std::numeric_limits<std::int64_t>::max()), rank);
  std::vector<RegionSource> rotating;
  for (const RotatingSource& s : agreement.rotating) rotating.push_back(s.region);
  return tensor_file_bytes(agreement.dense, metadata) +
         (rotating.empty() ? 0 : tensor_file_bytes(rotating, metadata));
}

Announcement announce(std::span<const StateTensor> tensors, const SaveAgreement& agreement,
                      std::int64_t bytes) {
  Announcement a;
  std::uint64_t expected = 0, covered = 0;
  std::uint32_t list = 0;
  for (const StateTensor& t : tensors) {
    const std::string line =
        fmt::format("{} {} {} {}{};", t.key(), dtype_name(t.dtype), tensor_class_name(t.cls),
                    Region::whole(t.shape).name(), t.rotates ? " rotates" : "");
    list = crc32c(line.data(), line.size(), list);
    expected += weight_of(t.key()) * static_cast<std::uint64_t>(Region::whole(t.shape).elements());
  }
  const auto add = [&](const RegionSource& s) {
    covered += weight_of(s.key) * static_cast<std::uint64_t>(s.region.elements());
  };
  for (const RegionSource& s : agreement.dense) add(s);
  for (const RotatingSource& s : agreement.rotating) add(s.region);
  a.list = static_cast<std::int64_t>(list);
  a.bytes = bytes;
  a.covered = static_cast<std::int64_t>(covered);
  a.expected = static_cast<std::int64_t>(expected);
  return a;
}

/// Checks that the ranks list the same and together write each tensor once; gives all their bytes.
Result<std::int64_t> check_announcements(Communicator& world, const Announcement& mine) {
  const std::int64_t numbers[] = {mine.list, mine.bytes, mine.covered, mine.expected};
  const auto all = gather_numbers(world, numbers);
  std::uint64_t covered = 0;
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < all.size(); r += std::size(numbers)) {
    if (all[r] != all[0]) {
      return Error(ErrorKind::kInternal,
                   fmt::format("rank {} saves other tensors than rank 0", r / std::size(numbers)));
    }
    bytes += all[r + 1];
    covered += static_cast<std::uint64_t>(all[r + 2]);
  }
  if (covered != static_cast<std::uint64_t>(mine.expected)) {
    return Error(ErrorKind::kInternal,
                 "the regions that the ranks save are not each tensor, whole and once");
  }
  return bytes;
}

}  // namespace

Result<SaveAgreement> agree_on_save(Communicator& world, std::span<const StateTensor> tensors) {
  SaveAgreement agreement;
  for (const StateTensor& t : tensors) {
    agreement.tensors.push_back({t.name, t.kind, t.dtype, t.cls, t.shape});
    agreement.rotates.push_back(t.rotates);
  }
  find_sources(tensors, agreement);
  const auto total =
      check_announcements(world, announce(tensors, agreement, file_bytes(agreement, world.rank())));
  if (!total) return total.error();
  agreement.total_bytes = total.value();
  for (const StateTensor& t : tensors) {
    if (!t.rotates || t.cls == TensorClass::kExpert) continue;
    return Error(ErrorKind::kInternal, t.key() + " rotates and is no expert's");
  }
  return agreement;
}

}  // namespace fourfold
