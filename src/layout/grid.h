#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/strong_int.h"
#include "layout/axis.h"

namespace fourfold {

/// One number per axis.
struct PerAxis {
  int x = 0, y = 0, z = 0, data = 0;

  constexpr int operator[](Axis a) const {
    return a == Axis::kX ? x : a == Axis::kY ? y : a == Axis::kZ ? z : data;
  }
  constexpr int& operator[](Axis a) {
    return a == Axis::kX ? x : a == Axis::kY ? y : a == Axis::kZ ? z : data;
  }
  constexpr bool operator==(const PerAxis&) const = default;
};

/// A rank's place: its index along each axis.
using Coords = PerAxis;

/// Sizes of the axes, each at least 1.
struct GridShape : PerAxis {
  constexpr GridShape() : PerAxis{1, 1, 1, 1} {}
  constexpr GridShape(int gx, int gy, int gz, int gdata) : PerAxis{gx, gy, gz, gdata} {}
  constexpr int size() const { return x * y * z * data; }
  int size(AxisSet axes) const;
  /// "2x1x2x1": x, y, z, data.
  std::string name() const;
};

/// The grid of a run: which world rank stands where. `order` names the axes fastest first, so that
/// the busiest can be kept inside a node; "yxzd" gives rank = y + Gy·(x + Gx·(z + Gz·data)).
class Grid {
 public:
  explicit Grid(GridShape shape, std::string_view order = "yxzd");

  const GridShape& shape() const { return shape_; }
  int size() const { return shape_.size(); }
  Coords coords(WorldRank rank) const;
  WorldRank rank(Coords coords) const;

  /// World ranks of the group over `axes` that holds the rank at `at`, in group order (axis.h).
  std::vector<WorldRank> group(Coords at, AxisSet axes) const;
  /// The index of `at` inside that group, and the number of ranks in it.
  int group_rank(Coords at, AxisSet axes) const;
  int group_size(AxisSet axes) const { return shape_.size(axes); }

  /// Whether `order` is a permutation of the letters x, y, z, d.
  static bool valid_order(std::string_view order);

 private:
  GridShape shape_;
  std::array<Axis, 4> order_;
};

}  // namespace fourfold
