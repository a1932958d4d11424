// Grids, ranges, regions and tensor layouts on random shapes: every cut covers everything once.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "layout/tensor_layout.h"
#include "policy/head_layout.h"

namespace fourfold {
namespace {

std::int64_t number(std::int64_t least, std::int64_t most) {
  return *rc::gen::inRange(least, most + 1);
}

GridShape random_shape() {
  auto size = [] { return static_cast<int>(number(1, 4)); };
  const int x = size(), y = size(), z = size(), data = size();
  return {x, y, z, data};
}

Grid random_grid() {
  std::string order = "xyzd";
  for (std::size_t i = order.size(); i-- > 1;) {
    std::swap(order[i], order[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(i)))]);
  }
  return Grid(random_shape(), order);
}

AxisSet random_axes() {
  AxisSet axes;
  for (Axis a : kAllAxes) {
    if (number(0, 1) == 1) axes = axes | AxisSet{a};
  }
  return axes;
}

/// Some box inside `box`, perhaps an empty one.
Region random_part(const Region& box) {
  Region part;
  for (const Range& r : box.dims) {
    const std::int64_t begin = number(r.begin, r.end);
    part.dims.push_back({begin, number(begin, r.end)});
  }
  return part;
}

Region random_box(int dims, std::int64_t most) {
  Region box;
  for (int d = 0; d < dims; ++d) {
    const std::int64_t begin = number(0, most);
    box.dims.push_back({begin, begin + number(0, most)});
  }
  return box;
}

/// Calls f(index, flat) with every index of a box and its place in a dense buffer of the box.
template <class F>
void for_each_index(const Region& box, F&& f) {
  std::vector<std::int64_t> at;
  for (const Range& r : box.dims) at.push_back(r.begin);
  for (std::int64_t flat = 0; flat < box.elements(); ++flat) {
    f(at, flat);
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.dims[d].end) break;
      at[d] = box.dims[d].begin;
    }
  }
}

bool inside(const std::vector<std::int64_t>& at, const Region& box) {
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (at[d] < box.dims[d].begin || at[d] >= box.dims[d].end) return false;
  }
  return true;
}

/// A tensor cut as parameters are: x and y over its dims in any way, shared parts included.
TensorLayout random_layout(const Grid& grid) {
  TensorLayout layout;
  const auto dims = number(1, 3);
  for (std::int64_t d = 0; d < dims; ++d) {
    layout.shape.push_back(number(0, 9));
    layout.dims.emplace_back();
  }
  // Each axis cuts one dim at most.
  for (Axis a : {Axis::kX, Axis::kY}) {
    const std::int64_t d = number(0, dims);
    if (d < dims) layout.dims[d].axes = layout.dims[d].axes | AxisSet{a};
  }
  for (DimSplit& split : layout.dims) {
    const int ranks = grid.group_size(split.axes);
    const auto parts = static_cast<int>(number(0, ranks));
    if (parts > 0 && ranks % parts == 0) split.parts = parts;
  }
  return layout;
}

/// How many ranks of the given replica hold each element.
std::vector<int> coverage(const TensorLayout& layout, const Grid& grid, bool zero, int replica,
                          int data) {
  const Region whole = Region::whole(layout.shape);
  std::vector<int> times(static_cast<std::size_t>(whole.elements()), 0);
  for (int r = 0; r < grid.size(); ++r) {
    const Coords at = grid.coords(WorldRank(r));
    if (layout.replica(grid, at) != replica || (!zero && at.data != data)) continue;
    const Region held = layout.updated(grid, at, zero);
    for_each_index(whole, [&](const auto& index, std::int64_t flat) {
      if (inside(index, held)) ++times[static_cast<std::size_t>(flat)];
    });
  }
  return times;
}

void check_tiles(const TensorLayout& layout, const Grid& grid) {
  const int replicas = layout.replicas(grid);
  for (int replica = 0; replica < replicas; ++replica) {
    for (const int times : coverage(layout, grid, true, replica, 0)) RC_ASSERT(times == 1);
    for (int data = 0; data < grid.shape().data; ++data) {
      for (const int times : coverage(layout, grid, false, replica, data)) RC_ASSERT(times == 1);
    }
  }
  for (int r = 0; r < grid.size(); ++r) {
    const Coords at = grid.coords(WorldRank(r));
    RC_ASSERT((layout.replica(grid, at) >= 0 && layout.replica(grid, at) < replicas));
  }
}

RC_GTEST_PROP(SplitRange, CutsInOrderIntoPartsThatDifferByOneAtMost, ()) {
  const std::int64_t size = number(0, 200), parts = number(1, 40), scale = number(0, 5);
  const std::vector<std::int64_t> counts = split_counts(size, parts, scale);
  std::int64_t at = 0, longest = 0, shortest = size;
  for (std::int64_t i = 0; i < parts; ++i) {
    const Range part = split_range(size, parts, i);
    RC_ASSERT((part.begin == at && part.end >= at));
    RC_ASSERT(counts[static_cast<std::size_t>(i)] == part.size() * scale);
    if (i > 0) RC_ASSERT(part.size() <= split_range(size, parts, i - 1).size());
    longest = std::max(longest, part.size());
    shortest = std::min(shortest, part.size());
    at = part.end;
  }
  RC_ASSERT(at == size);
  RC_ASSERT(longest - shortest <= 1);
}

RC_GTEST_PROP(Regions, NamesAreReadBack, ()) {
  const Region box = random_box(static_cast<int>(number(0, 4)), std::int64_t{1} << 40);
  const auto read = Region::parse(box.name());
  RC_ASSERT(read.has_value());
  RC_ASSERT(*read == box);
}

RC_GTEST_PROP(Regions, OtherTextIsRefusedOrIsItsOwnName, ()) {
  // Names with one character changed: read as what they say, or not at all; never as another box.
  std::string text = random_box(static_cast<int>(number(1, 3)), 50).name();
  text[static_cast<std::size_t>(number(0, static_cast<std::int64_t>(text.size()) - 1))] =
      *rc::gen::elementOf(std::string("0123456789:,[]- x"));
  const auto read = Region::parse(text);
  if (!read) return;
  for (const Range& r : read->dims) RC_ASSERT((0 <= r.begin && r.begin <= r.end));
  RC_ASSERT(Region::parse(read->name()) == read);
}

RC_GTEST_PROP(Regions, IntersectionHoldsWhatBothHold, ()) {
  const auto dims = static_cast<int>(number(1, 3));
  const Region a = random_box(dims, 6), b = random_box(dims, 6);
  const Region both = intersect(a, b);
  std::int64_t common = 0;
  for_each_index(a, [&](const auto& at, std::int64_t) { common += inside(at, b) ? 1 : 0; });
  RC_ASSERT(both.elements() == common);
  for_each_index(
      both, [&](const auto& at, std::int64_t) { RC_ASSERT((inside(at, a) && inside(at, b))); });
}

RC_GTEST_PROP(Regions, CopiedOutAndBackIsUnchanged, ()) {
  const auto dims = static_cast<int>(number(1, 4));
  const Region whole = random_box(dims, 6), target = random_part(whole);
  const Region part = random_part(target);
  std::vector<std::int32_t> from(static_cast<std::size_t>(whole.elements()));
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i) + 1;
  std::vector<std::int32_t> middle(static_cast<std::size_t>(target.elements()), -1);
  copy_region(part, whole, from.data(), target, middle.data(), 4);
  std::vector<std::int32_t> back(from.size(), -2);
  copy_region(part, target, middle.data(), whole, back.data(), 4);
  std::int64_t copied = 0;
  for (const std::int32_t v : middle) copied += v != -1 ? 1 : 0;
  RC_ASSERT(copied == part.elements());
  for_each_index(whole, [&](const auto& at, std::int64_t flat) {
    const auto i = static_cast<std::size_t>(flat);
    RC_ASSERT(back[i] == (inside(at, part) ? from[i] : -2));
  });
}

RC_GTEST_PROP(Grids, RanksAndCoordinatesAreOneToOne, ()) {
  const Grid grid = random_grid();
  std::set<std::int64_t> seen;
  for (int r = 0; r < grid.size(); ++r) {
    const Coords at = grid.coords(WorldRank(r));
    for (Axis a : kAllAxes) RC_ASSERT((at[a] >= 0 && at[a] < grid.shape()[a]));
    RC_ASSERT(grid.rank(at).value == r);
    seen.insert(grid.rank(at).value);
  }
  RC_ASSERT(seen.size() == static_cast<std::size_t>(grid.size()));
}

RC_GTEST_PROP(Grids, GroupsPartitionTheWorldAndKnowTheirRanks, ()) {
  const Grid grid = random_grid();
  const AxisSet axes = random_axes();
  std::vector<int> times(static_cast<std::size_t>(grid.size()), 0);
  for (int r = 0; r < grid.size(); ++r) {
    const Coords at = grid.coords(WorldRank(r));
    const std::vector<WorldRank> members = grid.group(at, axes);
    RC_ASSERT(members.size() == static_cast<std::size_t>(grid.group_size(axes)));
    RC_ASSERT(members[static_cast<std::size_t>(grid.group_rank(at, axes))].value == r);
    for (const WorldRank member : members) {
      const Coords other = grid.coords(member);
      for (Axis a : kAllAxes) RC_ASSERT((axes.contains(a) || other[a] == at[a]));
      RC_ASSERT(grid.group(other, axes) == members);
    }
    if (grid.group_rank(at, axes) != 0) continue;
    for (const WorldRank member : members) ++times[static_cast<std::size_t>(member.value)];
  }
  for (const int n : times) RC_ASSERT(n == 1);
}

RC_GTEST_PROP(TensorLayouts, EachReplicaTilesTheTensorOnce, ()) {
  const Grid grid = random_grid();
  check_tiles(random_layout(grid), grid);
}

RC_GTEST_PROP(TensorLayouts, TheHeadThatGathersTilesToo, ()) {
  const Grid grid = random_grid();
  const std::int64_t vocab = number(1, 30), hidden = number(1, 5);
  check_tiles({{vocab, hidden}, {{{Axis::kX, Axis::kY}, 0}, {{}, 0}}}, grid);
}

RC_GTEST_PROP(TensorLayouts, StorageIsRowsOfTheBlock, ()) {
  const Grid grid = random_grid();
  const TensorLayout layout = random_layout(grid);
  for (int r = 0; r < grid.size(); ++r) {
    const Coords at = grid.coords(WorldRank(r));
    const Region block = layout.block(grid, at), stored = layout.stored(grid, at);
    const Region updated = layout.updated(grid, at, true);
    RC_ASSERT(intersect(block, stored).elements() == stored.elements());
    RC_ASSERT(intersect(stored, updated).elements() == updated.elements());
    for (std::size_t d = 1; d < block.dims.size(); ++d) {
      RC_ASSERT((stored.dims[d] == block.dims[d] && updated.dims[d] == block.dims[d]));
    }
    RC_ASSERT(layout.updated(grid, at, false) == stored);
  }
}

RC_GTEST_PROP(HeadLayouts, NothingToChooseWithoutY, ()) {
  GridShape grid = random_shape();
  grid.y = 1;
  RC_ASSERT(choose_head_layout(grid, number(1, 99999), number(1, 9999), number(1, 9999),
                               number(0, 1) == 1, 4) == HeadLayout::kReduceLogits);
}

}  // namespace
}  // namespace fourfold
