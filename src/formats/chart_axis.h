#pragma once

#include <string>
#include <vector>

namespace fourfold {

/// An axis of a chart: a range that covers the data, and round places to mark in it.
struct ChartAxis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
  std::vector<double> ticks;
  std::vector<std::string> labels;  ///< Of the ticks.

  /// 0 at `low`, 1 at `high`.
  double position(double value) const;
};

/// The axis of values in [low, high]; about `count` ticks at 1, 2 or 5 times a power of ten.
/// `tight` keeps the range as it is, else it is widened to the outer ticks. Logarithmic axes need
/// low > 0.
ChartAxis make_axis(double low, double high, int count, bool logarithmic, bool tight);

}  // namespace fourfold
