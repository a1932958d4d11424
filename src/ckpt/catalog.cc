#include "ckpt/catalog.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/crc32c.h"

namespace fourfold {
namespace {

constexpr std::int64_t kMaxCurrentBytes = 4096;
constexpr std::int64_t kMaxConfigBytes = 16 << 20;

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

std::optional<CheckpointId> abandoned_id(const std::string& folder) {
  const std::string rest = folder.substr(std::string_view(kAbandonedPrefix).size());
  return CheckpointId::parse(rest.substr(0, rest.find('-', rest.find('-') + 1)));
}

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
    auto manifest =
        parse_manifest(read_file(fs, join_path(folder, kManifestName), kMaxManifestBytes));
    if (!manifest) return manifest;
    const auto named = CheckpointId::parse(folder.substr(folder.find_last_of('/') + 1));
    if (named && *named != manifest.value().id) {
      return Error(ErrorKind::kData,
                   fmt::format("{} has the manifest of {}", folder, manifest.value().id.folder()),
                   "a checkpoint keeps the name that it was saved under, or takes one without a "
                   "step");
    }
    return manifest;
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

int incarnation_after(const Catalog& catalog, const CheckpointId& id) {
  int incarnation = id.incarnation;
  const auto rise_above = [&](int left) { incarnation = std::max(incarnation, left + 1); };
  for (const CheckpointId& newer : catalog.complete) {
    if (newer > id) rise_above(std::max(newer.incarnation, id.incarnation));
  }
  for (const std::string& folder : catalog.abandoned) {
    if (const auto left = abandoned_id(folder)) rise_above(left->incarnation);
  }
  return incarnation;
}

}  // namespace fourfold
