#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace fourfold {

/// The axes of the grid. x splits the output features of a normal linear, y its input features, z
/// the batch and the storage of weights, data the batch alone.
enum class Axis : std::uint8_t { kX, kY, kZ, kData };

inline constexpr std::array<Axis, 4> kAllAxes{Axis::kX, Axis::kY, Axis::kZ, Axis::kData};

constexpr std::string_view axis_name(Axis axis) {
  constexpr std::array<std::string_view, 4> kNames{"x", "y", "z", "data"};
  return kNames[static_cast<std::size_t>(axis)];
}

/// A set of axes. Groups over several axes count their ranks in the order y, x, z, data (fastest
/// first), whatever the placement of ranks on nodes, so that sums over them keep their order.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis a : axes) bits_ |= bit(a);
  }
  constexpr bool contains(Axis a) const { return (bits_ & bit(a)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet o) const { return from_bits(bits_ | o.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;
  constexpr std::uint8_t bits() const { return bits_; }

  /// "x", "z·data", "world" for all four and "self" for none.
  std::string name() const;

 private:
  static constexpr std::uint8_t bit(Axis a) {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(a));
  }
  static constexpr AxisSet from_bits(unsigned bits) {
    AxisSet s;
    s.bits_ = static_cast<std::uint8_t>(bits);
    return s;
  }
  std::uint8_t bits_ = 0;
};

inline constexpr AxisSet kWorldAxes{Axis::kX, Axis::kY, Axis::kZ, Axis::kData};

}  // namespace fourfold
