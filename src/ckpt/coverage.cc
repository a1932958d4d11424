#include "ckpt/coverage.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace fourfold {
namespace {

bool meet(const Region& a, const Region& b) { return !intersect(a, b).empty(); }

/// The dim that most boxes differ in: sweeping along it meets the fewest at a time.
std::size_t sweep_dim(const std::vector<Region>& boxes) {
  std::size_t best = 0, most = 0;
  for (std::size_t d = 0; d < boxes.front().dims.size(); ++d) {
    std::set<std::int64_t> begins;
    for (const Region& box : boxes) begins.insert(box.dims[d].begin);
    if (begins.size() > most) {
      most = begins.size();
      best = d;
    }
  }
  return best;
}

/// Two boxes that share an element, if there are two.
std::optional<std::string> overlap(const std::vector<Region>& boxes) {
  if (boxes.size() < 2) return std::nullopt;
  if (boxes.front().dims.empty()) return "two hold the one element";
  const std::size_t dim = sweep_dim(boxes);
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return boxes[a].dims[dim].begin < boxes[b].dims[dim].begin;
  });
  std::vector<std::size_t> open;  // Those that the sweep has not left behind.
  for (const std::size_t i : order) {
    const std::int64_t here = boxes[i].dims[dim].begin;
    std::erase_if(open, [&](std::size_t o) { return boxes[o].dims[dim].end <= here; });
    for (const std::size_t o : open) {
      if (meet(boxes[o], boxes[i])) {
        return fmt::format("{} and {} hold the same elements", boxes[o].name(), boxes[i].name());
      }
    }
    open.push_back(i);
  }
  return std::nullopt;
}

}  // namespace

void Coverage::add(Region box) {
  if (!box.empty()) boxes_.push_back(std::move(box));
}

std::optional<std::string> Coverage::problem(const Region& whole) const {
  const std::int64_t wanted = whole.elements();
  std::int64_t held = 0;
  for (const Region& box : boxes_) {
    if (box.dims.size() != whole.dims.size() || intersect(box, whole) != box) {
      return fmt::format("{} lies outside {}", box.name(), whole.name());
    }
    if (__builtin_add_overflow(held, box.elements(), &held)) return "more elements than there are";
  }
  if (auto twice = overlap(boxes_)) return twice;
  // Boxes inside the whole that do not meet and count as many elements as it has are all of it.
  if (held != wanted) return fmt::format("{} of {} elements are missing", wanted - held, wanted);
  return std::nullopt;
}

}  // namespace fourfold
