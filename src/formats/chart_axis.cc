#include "formats/chart_axis.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace fourfold {
namespace {

/// The least of 1, 2, 5 times a power of ten that is at least `rough`.
double round_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// A tick's text, with the decimals that tell ticks `step` apart. `most` is the largest tick of the
/// axis: from 10,000 on all are written in thousands (k), then in millions (M) and so on.
std::string tick_label(double value, double step, double most) {
  if (value == 0) return "0";
  if (most >= 1e12 || most < 1e-4) return fmt::format("{:.3g}", value);
  const auto decimals = [step](double unit) {
    return std::clamp(static_cast<int>(-std::floor(std::log10(step / unit) + 1e-9)), 0, 8);
  };
  if (most >= 1e9) return fmt::format("{:.{}f}G", value / 1e9, decimals(1e9));
  if (most >= 1e6) return fmt::format("{:.{}f}M", value / 1e6, decimals(1e6));
  if (most >= 1e4) return fmt::format("{:.{}f}k", value / 1e3, decimals(1e3));
  return fmt::format("{:.{}f}", value, decimals(1));
}

ChartAxis linear_axis(double low, double high, int count, bool tight) {
  // What is all but one value gets some room around it.
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > std::max(size * 1e-12, 1e-280))) {
    const double pad = size < 1e-280 ? 1 : size * 0.1;
    low -= pad;
    high += pad;
  }
  ChartAxis axis;
  const double step = round_step((high - low) / count);
  const double first = tight ? std::ceil(low / step - 1e-9) : std::floor(low / step + 1e-9);
  const double last = tight ? std::floor(high / step + 1e-9) : std::ceil(high / step - 1e-9);
  axis.low = tight ? low : first * step;
  axis.high = tight ? high : last * step;
  for (double i = first; i <= last; ++i) {
    axis.ticks.push_back(i * step);
    axis.labels.push_back(
        tick_label(i * step, step, step * std::max(std::abs(first), std::abs(last))));
  }
  return axis;
}

ChartAxis log_axis(double low, double high, int count) {
  ChartAxis axis;
  axis.logarithmic = true;
  if (!(high > low * 1.01)) {
    low /= 2;
    high *= 2;
  }
  axis.low = low;
  axis.high = high;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / count)));
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::log10(high);
       power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && decades > 2.5) break;
      const double tick = factor * std::pow(10.0, power);
      if (tick < low * (1 - 1e-9) || tick > high * (1 + 1e-9)) continue;
      axis.ticks.push_back(tick);
      axis.labels.push_back(tick_label(tick, tick, tick));
    }
  }
  if (axis.ticks.size() < 2) {  // Less than a step from 1 to 2 to 5: even steps tell more.
    const ChartAxis even = linear_axis(low, high, count, /*tight=*/true);
    axis.ticks = even.ticks;
    axis.labels = even.labels;
  }
  return axis;
}

}  // namespace

double ChartAxis::position(double value) const {
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

ChartAxis make_axis(double low, double high, int count, bool logarithmic, bool tight) {
  return logarithmic ? log_axis(low, high, count) : linear_axis(low, high, count, tight);
}

}  // namespace fourfold
