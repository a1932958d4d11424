#include "layout/region.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"

namespace fourfold {

Range split_range(std::int64_t size, std::int64_t parts, std::int64_t index) {
  FF_CHECK(parts >= 1 && index >= 0 && index < parts, "part {} of {}", index, parts);
  const std::int64_t each = size / parts, longer = size % parts;
  const std::int64_t begin = index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

std::vector<std::int64_t> split_counts(std::int64_t size, std::int64_t parts, std::int64_t scale) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(parts));
  for (std::int64_t i = 0; i < parts; ++i) counts[i] = split_range(size, parts, i).size() * scale;
  return counts;
}

std::int64_t Region::elements() const {
  std::int64_t n = 1;
  for (const Range& r : dims) n *= r.size();
  return n;
}

std::vector<std::int64_t> Region::shape() const {
  std::vector<std::int64_t> sizes;
  for (const Range& r : dims) sizes.push_back(r.size());
  return sizes;
}

std::string Region::name() const {
  std::string text = "[";
  for (const Range& r : dims) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", r.begin, r.end);
  }
  return text + "]";
}

Region Region::whole(const std::vector<std::int64_t>& shape) {
  Region region;
  for (std::int64_t n : shape) region.dims.push_back({0, n});
  return region;
}

std::optional<Region> Region::parse(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  const char* p = text.data() + 1;
  const char* const end = text.data() + text.size() - 1;
  Region region;
  auto number = [&](std::int64_t& value) {
    const auto [next, error] = std::from_chars(p, end, value);
    const bool read = error == std::errc() && next != p && value >= 0;
    p = next;
    return read;
  };
  while (p != end) {
    if (!region.dims.empty() && *p++ != ',') return std::nullopt;
    Range r;
    if (!number(r.begin) || p == end || *p++ != ':' || !number(r.end)) return std::nullopt;
    if (r.end < r.begin) return std::nullopt;
    region.dims.push_back(r);
  }
  return region;
}

Region intersect(const Region& a, const Region& b) {
  FF_CHECK(a.dims.size() == b.dims.size(), "{} and {}", a.name(), b.name());
  Region both;
  for (std::size_t i = 0; i < a.dims.size(); ++i) {
    const std::int64_t begin = std::max(a.dims[i].begin, b.dims[i].begin);
    both.dims.push_back({begin, std::max(begin, std::min(a.dims[i].end, b.dims[i].end))});
  }
  return both;
}

void copy_region(const Region& part, const Region& source, const void* from, const Region& target,
                 void* to, std::int64_t element_size) {
  if (part.empty()) return;
  const std::size_t dims = part.dims.size();
  // Trailing dims that the part spans whole in both buffers are copied as one run with the dim
  // before them.
  std::size_t run_dim = dims;
  std::int64_t run = 1;
  while (run_dim > 0) {
    --run_dim;
    run *= part.dims[run_dim].size();
    if (part.dims[run_dim] != source.dims[run_dim] || part.dims[run_dim] != target.dims[run_dim]) {
      break;
    }
  }
  auto offset = [&](const Region& box, const std::vector<std::int64_t>& at) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      flat = flat * box.dims[d].size() + (at[d] - box.dims[d].begin);
    }
    return flat * element_size;
  };
  std::vector<std::int64_t> at;
  for (const Range& r : part.dims) at.push_back(r.begin);
  while (true) {
    std::memcpy(static_cast<char*>(to) + offset(target, at),
                static_cast<const char*>(from) + offset(source, at),
                static_cast<std::size_t>(run * element_size));
    std::size_t d = run_dim;
    while (d > 0 && ++at[d - 1] == part.dims[d - 1].end) {
      at[d - 1] = part.dims[d - 1].begin;
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace fourfold
