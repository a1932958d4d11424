#include "layout/axis.h"

namespace fourfold {

std::string AxisSet::name() const {
  if (empty()) return "self";
  if (*this == kWorldAxes) return "world";
  std::string text;
  for (Axis a : kAllAxes) {
    if (contains(a)) text += (text.empty() ? "" : "·") + std::string(axis_name(a));
  }
  return text;
}

}  // namespace fourfold
