#include "layout/grid.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace fourfold {
namespace {

/// The order of ranks inside groups, fastest first.
constexpr std::array<Axis, 4> kGroupOrder{Axis::kY, Axis::kX, Axis::kZ, Axis::kData};

Axis axis_of_letter(char c) {
  return c == 'x' ? Axis::kX : c == 'y' ? Axis::kY : c == 'z' ? Axis::kZ : Axis::kData;
}

}  // namespace

int GridShape::size(AxisSet axes) const {
  int n = 1;
  for (Axis a : kAllAxes) n *= axes.contains(a) ? (*this)[a] : 1;
  return n;
}

std::string GridShape::name() const { return fmt::format("{}x{}x{}x{}", x, y, z, data); }

bool Grid::valid_order(std::string_view order) {
  std::string sorted(order);
  std::sort(sorted.begin(), sorted.end());
  return sorted == "dxyz";
}

Grid::Grid(GridShape shape, std::string_view order) : shape_(shape), order_{} {
  FF_CHECK(valid_order(order), "order {}", order);
  for (Axis a : kAllAxes) FF_CHECK(shape[a] >= 1, "grid {}", shape.name());
  for (std::size_t i = 0; i < order.size(); ++i) order_[i] = axis_of_letter(order[i]);
}

Coords Grid::coords(WorldRank rank) const {
  FF_CHECK(rank.value >= 0 && rank.value < size(), "rank {} of {}", rank.value, size());
  Coords c;
  auto rest = static_cast<int>(rank.value);
  for (Axis a : order_) {
    c[a] = rest % shape_[a];
    rest /= shape_[a];
  }
  return c;
}

WorldRank Grid::rank(Coords coords) const {
  std::int64_t rank = 0;
  for (auto a = order_.rbegin(); a != order_.rend(); ++a) rank = rank * shape_[*a] + coords[*a];
  return WorldRank(rank);
}

std::vector<WorldRank> Grid::group(Coords at, AxisSet axes) const {
  std::vector<WorldRank> members;
  members.reserve(group_size(axes));
  for (int index = 0; index < group_size(axes); ++index) {
    Coords c = at;
    int rest = index;
    for (Axis a : kGroupOrder) {
      if (!axes.contains(a)) continue;
      c[a] = rest % shape_[a];
      rest /= shape_[a];
    }
    members.push_back(rank(c));
  }
  return members;
}

int Grid::group_rank(Coords at, AxisSet axes) const {
  int index = 0;
  for (auto a = kGroupOrder.rbegin(); a != kGroupOrder.rend(); ++a) {
    if (axes.contains(*a)) index = index * shape_[*a] + at[*a];
  }
  return index;
}

}  // namespace fourfold
