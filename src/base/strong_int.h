#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace fourfold {

/// An integer that does not mix with integers of another meaning.
template <class Tag>
struct StrongInt {
  std::int64_t value = 0;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(std::int64_t v) : value(v) {}
  constexpr auto operator<=>(const StrongInt&) const = default;
  constexpr StrongInt& operator++() {
    ++value;
    return *this;
  }
  constexpr StrongInt operator+(StrongInt o) const { return StrongInt(value + o.value); }
  constexpr StrongInt operator-(StrongInt o) const { return StrongInt(value - o.value); }
};

using WorldRank = StrongInt<struct WorldRankTag>;  ///< A rank among all ranks of the run.
using Step = StrongInt<struct StepTag>;            ///< Optimizer steps done.

}  // namespace fourfold

template <class Tag>
struct std::hash<fourfold::StrongInt<Tag>> {
  std::size_t operator()(fourfold::StrongInt<Tag> v) const {
    return std::hash<std::int64_t>{}(v.value);
  }
};
