// Any bytes as a manifest or as CURRENT: an error, or what can be written and read again. The first
// byte says which of the two, and whether the checksum is made right, as a hostile writer would.
#include <fmt/core.h>

#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "base/crc32c.h"
#include "ckpt/file_names.h"
#include "ckpt/manifest.h"
#include "tests/fuzz/allocation_watch.h"

namespace fourfold {
namespace {

constexpr unsigned kSealedBit = 1, kCurrentBit = 2;

void require(bool holds) {
  if (!holds) std::abort();
}

std::string crc_of(std::string_view text) {
  return fmt::format("{:08x}", crc32c(text.data(), text.size()));
}

void check_manifest(const std::string& text) {
  const auto read = parse_manifest(text);
  if (!read) return;
  const Manifest& m = read.value();
  std::set<std::string> names;
  for (const FileRecord& f : m.files) {
    require(names.insert(f.name).second && f.size >= 0);
    require(f.name.find('/') == std::string::npos && f.name[0] != '.');
  }
  names.clear();
  for (const ManifestTensor& t : m.tensors) {
    require(names.insert(t.key()).second);
    require(Region::whole(t.shape).elements() >= 0);
  }
  std::set<CheckpointId> ids = {m.id};
  for (const ReferredCheckpoint& r : m.referred) {
    require(r.id < m.id && ids.insert(r.id).second);
    for (const FileRecord& f : r.files) {
      require(is_expert_file(f.name) && *rank_of_file(f.name) < r.grid.size());
    }
  }
  for (const ManifestTensor& t : m.tensors) require(!t.version || ids.contains(*t.version));
  require(m.meta.grid.size() >= 1 && m.id.step.value >= 0 && m.id.incarnation >= 0);
  const std::string written = manifest_text(m);
  const auto again = parse_manifest(written);
  require(again && manifest_text(again.value()) == written);
}

void check_current(const std::string& text) {
  const auto id = parse_current(text);
  if (!id) return;
  require(id.value().step.value >= 0);
  require(current_text(id.value()) == text);
  require(CheckpointId::parse(id.value().folder()) == id.value());
}

}  // namespace
}  // namespace fourfold

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace fourfold;
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool current = data[0] & kCurrentBit;
  if (data[0] & kSealedBit) {
    text +=
        current ? " " + crc_of(text) + "\n" : fmt::format(",\n\"crc32c\":\"{}\"}}\n", crc_of(text));
  }
  const AllocationWatch watch(64 * text.size() + (64 << 10));
  if (current) {
    check_current(text);
  } else {
    check_manifest(text);
  }
  return 0;
}
