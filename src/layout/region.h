#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fourfold {

/// Indices begin ≤ i < end.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The `index`-th of `parts` ranges that cut [0, size): the first (size mod parts) ranges are one
/// longer than the others; some are empty when parts > size.
Range split_range(std::int64_t size, std::int64_t parts, std::int64_t index);

/// Sizes of all `parts` ranges, each times `scale`: the counts that uneven collectives take.
std::vector<std::int64_t> split_counts(std::int64_t size, std::int64_t parts,
                                       std::int64_t scale = 1);

/// A box of a tensor: one range per dim.
struct Region {
  std::vector<Range> dims;

  std::int64_t elements() const;
  bool empty() const { return elements() == 0; }
  std::vector<std::int64_t> shape() const;
  bool operator==(const Region&) const = default;
  /// "[0:4,2:6]", as checkpoints name regions.
  std::string name() const;

  /// The whole of a tensor of this shape.
  static Region whole(const std::vector<std::int64_t>& shape);
  /// Reads name(); none where it is not one or a range is reversed.
  static std::optional<Region> parse(std::string_view text);
};

/// What both boxes hold; empty ranges where they do not meet. Both have the same number of dims.
Region intersect(const Region& a, const Region& b);

/// Copies box `part` (inside both) from a buffer that holds `source` to one that holds `target`,
/// both row-major and dense, of elements of `element_size` bytes.
void copy_region(const Region& part, const Region& source, const void* from, const Region& target,
                 void* to, std::int64_t element_size);

}  // namespace fourfold
