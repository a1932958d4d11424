#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout/region.h"

namespace fourfold {

/// A tensor as the rank that plans holds it.
struct SaveItem {
  std::string key;  ///< "name@kind": the same on all ranks.
  Region region;
  std::int64_t element_size = 0;
  int replica = 0;       ///< Which of the holders of this region this rank is.
  int replicas = 1;      ///< Their number.
  int replica_set = -1;  ///< Equal for two items only if their holders are the same ranks in order.
};

/// A part that this rank writes: whole rows (dim 0) of an item's region, so one dense run of it.
struct SavePiece {
  std::size_t item = 0;  ///< Index into the items.
  Region region;         ///< Global indices; never empty.
};

/// Regions of at least this many bytes are cut by rows among their holders; smaller ones go whole
/// to one of them.
inline constexpr std::int64_t kSaveSplitBytes = 16 * 1024;

/// Longer pieces are cut by rows, since a reader must read a piece whole to check it.
inline constexpr std::int64_t kSavePieceBytes = 16 * 1024 * 1024;

/// What one rank writes, so that the holders of a region together write each row of it once. Each
/// rank plans from its own list, without a word to the others: the holders of a region come to the
/// same cut because all that it depends on is equal among them. Loads are even: rows of large
/// regions to within one row, small regions largest first to the least loaded of their set (by a
/// hash of the key where the set is not known).
std::vector<SavePiece> plan_save(std::span<const SaveItem> items);

}  // namespace fourfold
