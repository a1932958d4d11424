#include "ckpt/retention.h"

#include <algorithm>

#include "ckpt/file_names.h"

namespace fourfold {
namespace {

/// Makes a checkpoint a folder without a manifest.
void unmake(Fs& fs, const std::string& dir, const CheckpointId& id) {
  const std::string path = join_path(dir, id.folder());
  fs.remove_file(join_path(path, kManifestName));
  fs.sync_directory(path);
}

/// Removes all of a folder but what is referred to; the folder too, where that is nothing. Whether
/// something stays.
bool remove_unreferred(Fs& fs, const std::string& dir, const CheckpointId& id,
                       const ReferredFiles& referred) {
  const std::string folder = id.folder(), path = join_path(dir, folder);
  std::vector<std::string> names = fs.list(path);
  const auto stays = [&](const std::string& name) { return referred.contains(id, name); };
  if (std::ranges::none_of(names, stays)) {
    remove_checkpoint(fs, dir, folder);
    return false;
  }
  std::erase_if(names, stays);
  for (const std::string& name : names) fs.remove_tree(join_path(path, name));
  if (!names.empty()) fs.sync_directory(path);
  return true;
}

}  // namespace

bool ReferredFiles::contains(const CheckpointId& id, const std::string& name) const {
  if (unknown && is_expert_file(name)) return true;
  const auto found = names.find(id);
  return found != names.end() && found->second.contains(name);
}

ReferredFiles referred_files(const Fs& fs, const std::string& dir, const Catalog& catalog) {
  ReferredFiles referred;
  for (const CheckpointId& id : catalog.candidates()) {
    const auto manifest = read_manifest(fs, join_path(dir, id.folder()));
    if (!manifest) {
      referred.unknown =
          Error(manifest.error().kind(),
                "expert files that nothing is known to refer to are kept: " + id.folder() + ": " +
                    manifest.error().what(),
                "once that checkpoint is gone or whole they are removed");
      continue;
    }
    for (const ReferredCheckpoint& r : manifest.value().referred) {
      for (const FileRecord& file : r.files) referred.names[r.id].insert(file.name);
    }
  }
  return referred;
}

std::optional<Error> collect_garbage(Fs& fs, const std::string& dir) {
  Catalog catalog = read_catalog(fs, dir);
  for (const std::string& name : catalog.stray) fs.remove_file(join_path(dir, name));
  // What CURRENT names was whole once: evidence, until another takes its place.
  std::erase(catalog.incomplete, catalog.current);
  if (catalog.incomplete.empty()) return std::nullopt;
  const ReferredFiles referred = referred_files(fs, dir, catalog);
  bool left = false;
  for (const CheckpointId& id : catalog.incomplete) {
    left |= remove_unreferred(fs, dir, id, referred);
  }
  return left ? referred.unknown : std::nullopt;
}

std::optional<Error> remove_older(Fs& fs, const std::string& dir, const Retention& retention) {
  const Catalog catalog = read_catalog(fs, dir);
  std::set<Step> seen;
  for (auto it = catalog.complete.rbegin(); it != catalog.complete.rend(); ++it) {
    // Of two of one step the newer one counts.
    const bool newest_of_step = seen.insert(it->step).second;
    const bool kept = newest_of_step &&
                      (static_cast<int>(seen.size()) <= std::max(retention.keep_latest, 1) ||
                       (retention.keep_every > 0 && it->step.value % retention.keep_every == 0));
    // Newest first: none is left that refers to files which go before its manifest.
    if (!kept && *it != catalog.current) unmake(fs, dir, *it);
  }
  for (const std::string& folder : catalog.abandoned) {
    const auto id = abandoned_id(folder);
    if (id && catalog.current && id->step <= catalog.current->step) {
      remove_checkpoint(fs, dir, folder);
    }
  }
  return collect_garbage(fs, dir);
}

}  // namespace fourfold
