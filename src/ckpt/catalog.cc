#include "ckpt/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/crc32c.h"

namespace fourfold {
namespace {

constexpr std::int64_t kMaxCurrentBytes = 4096;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

/// The checkpoint that an abandoned folder was: "abandoned-step-00000200" or, where that name was
/// taken, "abandoned-step-00000200-2".
std::optional<CheckpointId> abandoned_id(const std::string& folder) {
  const std::string rest = folder.substr(std::string(kAbandonedPrefix).size());
  return CheckpointId::parse(rest.substr(0, rest.find('-', rest.find('-') + 1)));
}

void sort_names(const Fs& fs, const std::string& dir, Catalog& catalog) {
  for (const std::string& name : fs.list(dir)) {
    const std::string path = join_path(dir, name);
    if (const auto id = CheckpointId::parse(name)) {
      const bool complete = fs.exists(join_path(path, kManifestName));
      (complete ? catalog.complete : catalog.incomplete).push_back(*id);
    } else if (name.starts_with(kAbandonedPrefix)) {
      catalog.abandoned.push_back(name);
    } else if (name.ends_with(kTemporarySuffix) || name.starts_with(kProbePrefix)) {
      catalog.stray.push_back(name);
    }
  }
  std::sort(catalog.complete.begin(), catalog.complete.end());
  std::sort(catalog.incomplete.begin(), catalog.incomplete.end());
}

}  // namespace

std::vector<CheckpointId> Catalog::candidates() const {
  std::vector<CheckpointId> order;
  if (current) order.push_back(*current);
  for (auto it = complete.rbegin(); it != complete.rend(); ++it) {
    if (*it != current) order.push_back(*it);
  }
  return order;
}

std::optional<CheckpointId> Catalog::newest_committed() const {
  for (const CheckpointId& id : candidates()) {
    if (std::ranges::binary_search(complete, id)) return id;
  }
  return std::nullopt;
}

Catalog read_catalog(const Fs& fs, const std::string& dir) {
  Catalog catalog;
  sort_names(fs, dir, catalog);
  const std::string path = join_path(dir, kCurrentName);
  if (!fs.exists(path)) return catalog;
  try {
    catalog.current = parse_current(read_file(fs, path, kMaxCurrentBytes)).value();
  } catch (const Error& error) {
    catalog.current_problem = error.what();
  }
  return catalog;
}

Result<Manifest> read_manifest(const Fs& fs, const std::string& folder) {
  try {
    return parse_manifest(read_file(fs, join_path(folder, kManifestName), kMaxManifestBytes));
  } catch (const Error& error) {
    return error;
  }
}

Result<std::string> read_config(const Fs& fs, const std::string& folder, const Manifest& manifest) {
  try {
    for (const FileRecord& record : manifest.files) {
      if (record.name != kConfigName) continue;
      std::string text = read_file(fs, join_path(folder, kConfigName), kMaxConfigBytes);
      if (static_cast<std::int64_t>(text.size()) == record.size &&
          crc32c(text.data(), text.size()) == record.file_crc) {
        return text;
      }
      return Error(ErrorKind::kData,
                   fmt::format("{}/{}: its checksum is wrong", folder, kConfigName));
    }
    return Error(ErrorKind::kData, folder + ": the manifest names no configuration");
  } catch (const Error& error) {
    return error;
  }
}

void commit_checkpoint(Fs& fs, const std::string& dir, Manifest manifest,
                       const std::string& config_toml) {
  const std::string folder = join_path(dir, manifest.id.folder());
  write_file_atomically(fs, join_path(folder, kConfigName), config_toml);
  FileRecord config{kConfigName, static_cast<std::int64_t>(config_toml.size()), 0, 0};
  config.file_crc = crc32c(config_toml.data(), config_toml.size());
  manifest.files.push_back(config);
  write_file_atomically(fs, join_path(folder, kManifestName), manifest_text(manifest));
  set_current(fs, dir, manifest.id);
}

void set_current(Fs& fs, const std::string& dir, const CheckpointId& id) {
  write_file_atomically(fs, join_path(dir, kCurrentName), current_text(id));
}

void remove_checkpoint(Fs& fs, const std::string& dir, const std::string& folder) {
  const std::string path = join_path(dir, folder);
  if (!fs.exists(path)) return;
  fs.remove_file(join_path(path, kManifestName));
  fs.sync_directory(path);
  fs.remove_tree(path);
  fs.sync_directory(dir);
}

void collect_garbage(Fs& fs, const std::string& dir) {
  const Catalog catalog = read_catalog(fs, dir);
  for (const std::string& name : catalog.stray) fs.remove_file(join_path(dir, name));
  for (const CheckpointId& id : catalog.incomplete) {
    // What CURRENT names was whole once: evidence, until another takes its place.
    if (id != catalog.current) remove_checkpoint(fs, dir, id.folder());
  }
}

std::vector<std::string> abandon_newer(Fs& fs, const std::string& dir, const CheckpointId& id) {
  const Catalog catalog = read_catalog(fs, dir);
  std::vector<std::string> names;
  for (const CheckpointId& newer : catalog.complete) {
    if (newer <= id) continue;
    const std::string base = join_path(dir, kAbandonedPrefix + newer.folder());
    std::string target = base;
    for (int n = 2; fs.exists(target); ++n) target = fmt::format("{}-{}", base, n);
    fs.rename(join_path(dir, newer.folder()), target);
    names.push_back(newer.folder());
  }
  if (!names.empty()) fs.sync_directory(dir);
  return names;
}

void remove_older(Fs& fs, const std::string& dir, const Retention& retention) {
  const Catalog catalog = read_catalog(fs, dir);
  std::set<Step> seen;
  for (auto it = catalog.complete.rbegin(); it != catalog.complete.rend(); ++it) {
    // Of two of one step the newer one counts.
    const bool newest_of_step = seen.insert(it->step).second;
    const bool kept = newest_of_step &&
                      (static_cast<int>(seen.size()) <= std::max(retention.keep_latest, 1) ||
                       (retention.keep_every > 0 && it->step.value % retention.keep_every == 0));
    if (!kept && *it != catalog.current) remove_checkpoint(fs, dir, it->folder());
  }
  for (const std::string& folder : catalog.abandoned) {
    const auto id = abandoned_id(folder);
    if (id && catalog.current && id->step <= catalog.current->step) {
      remove_checkpoint(fs, dir, folder);
    }
  }
  collect_garbage(fs, dir);
}

}  // namespace fourfold
