#include "ckpt/save_content.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "base/check.h"
#include "base/crc32c.h"
#include "ckpt/agree.h"
#include "ckpt/file_names.h"

namespace fourfold {
namespace {

std::int64_t bytes_of(const ManifestTensor& t) {
  return Region::whole(t.shape).elements() * dtype_size(t.dtype);
}

/// The checkpoint itself, as later ones refer to it.
ReferredCheckpoint as_referred(const Manifest& m) {
  ReferredCheckpoint r{m.id, m.meta.grid, m.meta.order, m.meta.zero, {}};
  for (const FileRecord& file : m.files) {
    if (is_expert_file(file.name)) r.files.push_back(file);
  }
  return r;
}

}  // namespace

bool is_taken(const SaveAgreement& agreement, const SaveSelection& selection, std::size_t tensor) {
  return !agreement.rotates[tensor] || selection.empty() || selection[tensor];
}

Status agree_on_selection(Communicator& world, const SaveAgreement& agreement,
                          const SaveSelection& selection) {
  if (std::ranges::count(agreement.rotates, true) == 0) return Done{};
  const std::size_t count = agreement.tensors.size();
  std::int64_t hash = -1;  // Not of this state.
  if (selection.empty() || selection.size() == count) {
    std::string taken;
    for (std::size_t i = 0; i < count; ++i) taken += is_taken(agreement, selection, i) ? '1' : '0';
    hash = crc32c(taken.data(), taken.size());
  }
  const auto all = gather_numbers(world, {&hash, 1});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] < 0) {
      return Error(
          ErrorKind::kInternal,
          fmt::format("rank {} selects from a list of other than {} tensors", rank, count));
    }
    if (all[rank] != all[0]) {
      return Error(ErrorKind::kInternal,
                   fmt::format("rank {} selects other tensors to save than rank 0", rank));
    }
  }
  return Done{};
}

std::vector<RegionSource> selected_regions(const SaveAgreement& agreement,
                                           const SaveSelection& selection) {
  std::vector<RegionSource> regions;
  for (const RotatingSource& s : agreement.rotating) {
    if (is_taken(agreement, selection, s.tensor)) regions.push_back(s.region);
  }
  return regions;
}

Result<SaveContent> save_content(const SaveAgreement& agreement, const SaveSelection& selection,
                                 const Manifest* base) {
  std::unordered_map<std::string, const ManifestTensor*> known;
  for (std::size_t i = 0; base && !selection.empty() && i < base->tensors.size(); ++i) {
    const ManifestTensor& t = base->tensors[i];
    if (t.version) known.emplace(t.key(), &t);
  }
  SaveContent content{agreement.tensors, {}, {}, agreement.total_bytes};
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    ManifestTensor& t = content.tensors[i];
    if (is_taken(agreement, selection, i)) {
      if (agreement.rotates[i]) content.taken.push_back(i);
      continue;
    }
    const auto found = known.find(t.key());
    if (found == known.end() || found->second->dtype != t.dtype ||
        found->second->shape != t.shape) {
      return Error(
          ErrorKind::kData, fmt::format("no committed checkpoint has {} to refer to", t.key()),
          "the first checkpoint, and the next after one without expert files, is to be full");
    }
    t.version = found->second->version;
    content.bytes -= bytes_of(t);
  }
  if (base) content.referred = referred_by(content.tensors, *base);
  return content;
}

std::vector<ReferredCheckpoint> referred_by(const std::vector<ManifestTensor>& tensors,
                                            const Manifest& base) {
  std::set<CheckpointId> ids;
  for (const ManifestTensor& t : tensors) {
    if (t.version) ids.insert(*t.version);
  }
  std::vector<ReferredCheckpoint> referred;
  for (const CheckpointId& id : ids) {
    if (id == base.id) {
      referred.push_back(as_referred(base));
      continue;
    }
    const auto found = std::ranges::find(base.referred, id, &ReferredCheckpoint::id);
    if (found == base.referred.end()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{} says nothing of {}", base.id.folder(), id.folder()));
    }
    referred.push_back(*found);
  }
  return referred;
}

}  // namespace fourfold
