#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace fourfold {

/// Milliseconds of one call.
struct Medians {
  double ours, theirs;
};

/// Medians of calls taken in turn, so that both meet the same neighbours, after one of each.
inline Medians take_turns(const std::function<void()>& ours, const std::function<void()>& theirs) {
  constexpr int kRuns = 15;
  const auto milliseconds = [](const std::function<void()>& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  };
  std::vector<double> a, b;
  ours();
  theirs();
  for (int i = 0; i < kRuns; ++i) {
    a.push_back(milliseconds(ours));
    b.push_back(milliseconds(theirs));
  }
  std::nth_element(a.begin(), a.begin() + kRuns / 2, a.end());
  std::nth_element(b.begin(), b.begin() + kRuns / 2, b.end());
  return {a[kRuns / 2], b[kRuns / 2]};
}

}  // namespace fourfold
