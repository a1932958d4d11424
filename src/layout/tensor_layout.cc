#include "layout/tensor_layout.h"

#include <algorithm>

#include "base/check.h"
#include "layout/expert_grid.h"

namespace fourfold {
namespace {

int parts_of(const DimSplit& split, const Grid& grid) {
  const int ranks = grid.group_size(split.axes);
  const int parts = split.parts == 0 ? ranks : split.parts;
  FF_CHECK(ranks % parts == 0, "{} parts over {} ranks", parts, ranks);
  return parts;
}

/// Ranks that share a part of this dim, and which of them the rank at `at` is.
int sharers(const DimSplit& split, const Grid& grid) {
  return grid.group_size(split.axes) / parts_of(split, grid);
}

Region cut_dim0(Region region, int parts, int index) {
  Range& rows = region.dims[0];
  const Range part = split_range(rows.size(), parts, index);
  rows = {rows.begin + part.begin, rows.begin + part.end};
  return region;
}

}  // namespace

Region TensorLayout::block(const Grid& grid, Coords at) const {
  FF_CHECK(dims.size() == shape.size(), "{} splits for {} dims", dims.size(), shape.size());
  Region region;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const int index = grid.group_rank(at, dims[d].axes) / sharers(dims[d], grid);
    region.dims.push_back(split_range(shape[d], parts_of(dims[d], grid), index));
  }
  if (ExpertGrid(grid.shape(), expert_ranks).place(at).rank != expert_rank) region.dims[0] = {};
  return region;
}

Region TensorLayout::stored(const Grid& grid, Coords at) const {
  const ExpertGrid experts(grid.shape(), expert_ranks);
  return cut_dim0(block(grid, at), experts.storers(), experts.place(at).storer);
}

Region TensorLayout::updated(const Grid& grid, Coords at, bool zero) const {
  if (!zero) return stored(grid, at);
  const ExpertGrid experts(grid.shape(), expert_ranks);
  return cut_dim0(stored(grid, at), experts.replicas(), experts.place(at).replica);
}

bool TensorLayout::fits(const Grid& grid) const {
  return ExpertGrid::fits(grid.shape(), expert_ranks) &&
         std::all_of(dims.begin(), dims.end(), [&](const DimSplit& d) {
           return d.parts == 0 || grid.group_size(d.axes) % d.parts == 0;
         });
}

AxisSet TensorLayout::split_axes() const {
  AxisSet axes;
  for (const DimSplit& d : dims) axes = axes | d.axes;
  return axes;
}

int TensorLayout::replica(const Grid& grid, Coords at) const {
  int index = 0;
  const AxisSet split = split_axes();
  for (Axis a : {Axis::kX, Axis::kY}) {
    if (!split.contains(a)) index = index * grid.shape()[a] + at[a];
  }
  for (const DimSplit& d : dims) {
    const int shared = sharers(d, grid);
    index = index * shared + grid.group_rank(at, d.axes) % shared;
  }
  return index;
}

int TensorLayout::replicas(const Grid& grid) const {
  int n = 1;
  const AxisSet split = split_axes();
  for (Axis a : {Axis::kX, Axis::kY}) n *= split.contains(a) ? 1 : grid.shape()[a];
  for (const DimSplit& d : dims) n *= sharers(d, grid);
  return n;
}

std::int64_t TensorLayout::elements() const {
  std::int64_t n = 1;
  for (std::int64_t s : shape) n *= s;
  return n;
}

}  // namespace fourfold
