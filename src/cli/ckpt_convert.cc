#include "cli/ckpt_convert.h"

#include <fmt/core.h>

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/units.h"
#include "ckpt/diff.h"
#include "ckpt/fs.h"
#include "ckpt/hf_convert.h"
#include "ckpt/reshard.h"
#include "ckpt/upcycle.h"

namespace fourfold::cli {
namespace {

/// Reads "2,1,2,1,1": x, y, z, data, expert.
ReshardGrid parse_grid(const std::string& text) {
  const Error refused(ErrorKind::kUsage,
                      fmt::format("--grid must be x,y,z,data,expert, not \"{}\"", text),
                      "five whole numbers of at least 1: --grid 2,1,2,1,1");
  std::array<int, 5> sizes{};
  const char* p = text.data();
  const char* const end = p + text.size();
  double ranks = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i > 0 && (p == end || *p++ != ',')) throw refused;
    const auto [next, failed] = std::from_chars(p, end, sizes[i]);
    if (failed != std::errc() || sizes[i] < 1) throw refused;
    p = next;
    constexpr double kMaxRanks = 1e7;
    if (ranks *= i < 4 ? sizes[i] : 1; ranks > kMaxRanks) throw refused;
  }
  if (p != end) throw refused;
  return {GridShape(sizes[0], sizes[1], sizes[2], sizes[3]), sizes[4]};
}

HfExportOptions export_options(const CkptConvertOptions& options) {
  HfExportOptions result;
  if (options.dtype != "fp32" && options.dtype != "bf16") {
    throw Error(ErrorKind::kUsage, fmt::format("--dtype \"{}\" is not known", options.dtype),
                "fp32 or bf16");
  }
  if (options.dtype == "bf16") result.dtype = DType::kBF16;
  const auto bytes = parse_size(options.max_shard_size);
  if (!bytes || *bytes == 0) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--max-shard-size \"{}\" is no size", options.max_shard_size),
                "a number with a unit: 5GB, 512MiB");
  }
  result.max_shard_bytes = static_cast<std::uint64_t>(*bytes);
  return result;
}

std::string converted(Fs& fs, const std::string& verb, const CkptConvertOptions& o) {
  if (verb == "diff") return checkpoint_diff(fs, o.from, o.to).value().text;
  if (verb == "reshard") {
    return reshard_checkpoint(fs, o.from, o.to, parse_grid(o.grid), o.overrides);
  }
  if (verb == "upcycle") return upcycle_checkpoint(fs, o.from, o.to, o.overrides);
  if (verb == "import") return import_hf(fs, o.from, o.to, o.overrides);
  return export_hf(fs, o.from, o.to, export_options(o));
}

}  // namespace

int convert_checkpoint(const std::string& verb, const CkptConvertOptions& options) {
  PosixFs fs;
  fmt::print("{}", converted(fs, verb, options));
  return 0;
}

}  // namespace fourfold::cli
