#include "policy/save_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"

namespace fourfold {
namespace {

std::int64_t bytes_of(const SaveItem& item) { return item.region.elements() * item.element_size; }

bool is_cut(const SaveItem& item) {
  return item.replicas > 1 && !item.region.dims.empty() &&
         item.region.dims[0].size() >= item.replicas && bytes_of(item) >= kSaveSplitBytes;
}

std::uint32_t hash_of(const SaveItem& item) { return crc32c(item.key.data(), item.key.size()); }

/// The rows of a large item that this rank writes. Which holders get the longer parts turns with
/// the key, or the first ones would get a row more of every tensor.
Region rows_of(const SaveItem& item) {
  const int turned = static_cast<int>((static_cast<std::uint32_t>(item.replica) + hash_of(item)) %
                                      static_cast<std::uint32_t>(item.replicas));
  Region piece = item.region;
  Range& rows = piece.dims[0];
  const Range part = split_range(rows.size(), item.replicas, turned);
  rows = {rows.begin + part.begin, rows.begin + part.end};
  return piece;
}

/// Who writes each small item of one replica set: largest first, to the least loaded. All holders
/// see the same items of the set, in the same order, so they all find the same.
void spread(std::span<const SaveItem> items, std::vector<std::size_t> set,
            std::vector<int>& writer) {
  std::stable_sort(set.begin(), set.end(), [&](std::size_t a, std::size_t b) {
    return bytes_of(items[a]) > bytes_of(items[b]);
  });
  const int replicas = items[set.front()].replicas;
  // Sets begin at different holders, or the first rank would get the largest item of each.
  const int turn =
      static_cast<int>(hash_of(items[set.front()]) % static_cast<std::uint32_t>(replicas));
  std::vector<std::int64_t> load(static_cast<std::size_t>(replicas));
  for (std::size_t i : set) {
    const auto least = std::min_element(load.begin(), load.end());
    writer[i] = (static_cast<int>(least - load.begin()) + turn) % replicas;
    *least += bytes_of(items[i]);
  }
}

/// Adds a region in pieces of at most kSavePieceBytes, or of one row where that is longer.
void add_pieces(const SaveItem& item, std::size_t index, const Region& region,
                std::vector<SavePiece>& pieces) {
  const std::int64_t bytes = region.elements() * item.element_size;
  if (bytes <= kSavePieceBytes || region.dims.empty()) {
    pieces.push_back({index, region});
    return;
  }
  const Range rows = region.dims[0];
  const std::int64_t step = std::max<std::int64_t>(1, kSavePieceBytes / (bytes / rows.size()));
  for (std::int64_t begin = rows.begin; begin < rows.end; begin += step) {
    Region piece = region;
    piece.dims[0] = {begin, std::min(begin + step, rows.end)};
    pieces.push_back({index, std::move(piece)});
  }
}

}  // namespace

std::vector<SavePiece> plan_save(std::span<const SaveItem> items) {
  std::vector<int> writer(items.size(), 0);
  std::map<std::pair<int, int>, std::vector<std::size_t>> sets;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const SaveItem& item = items[i];
    FF_CHECK(item.replicas >= 1 && item.replica >= 0 && item.replica < item.replicas,
             "{}: replica {} of {}", item.key, item.replica, item.replicas);
    if (item.region.empty() || item.replicas == 1 || is_cut(item)) continue;
    if (item.replica_set < 0) {
      writer[i] = static_cast<int>(hash_of(item) % static_cast<std::uint32_t>(item.replicas));
    } else {
      sets[{item.replica_set, item.replicas}].push_back(i);
    }
  }
  for (const auto& [id, set] : sets) spread(items, set, writer);

  std::vector<SavePiece> pieces;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].region.empty()) continue;
    if (is_cut(items[i])) {
      add_pieces(items[i], i, rows_of(items[i]), pieces);
    } else if (writer[i] == items[i].replica) {
      add_pieces(items[i], i, items[i].region, pieces);
    }
  }
  return pieces;
}

}  // namespace fourfold
