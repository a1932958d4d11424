#include <fmt/core.h>

#include <algorithm>

#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/reader.h"
#include "ckpt/store.h"

namespace fourfold {
namespace {

/// What rank 0 finds in the folder, for everybody: a cache of a shared file system may show another
/// rank another list.
struct Findings {
  bool history = false;
  std::vector<CheckpointId> candidates;
};

std::vector<std::int64_t> to_numbers(const Findings& findings) {
  std::vector<std::int64_t> numbers = {findings.history ? 1 : 0};
  for (const CheckpointId& id : findings.candidates) {
    numbers.push_back(id.step.value);
    numbers.push_back(id.incarnation);
  }
  return numbers;
}

Findings from_numbers(const std::vector<std::int64_t>& numbers) {
  Findings findings;
  findings.history = numbers[0] != 0;
  for (std::size_t i = 1; i + 1 < numbers.size(); i += 2) {
    findings.candidates.push_back({Step(numbers[i]), static_cast<int>(numbers[i + 1])});
  }
  return findings;
}

Result<Findings> find_candidates(Communicator& world, const Fs& fs, const std::string& dir,
                                 const Log& log) {
  Findings mine;
  const auto failed = run_on_first(world, [&] {
    const Catalog catalog = read_catalog(fs, dir);
    mine = {catalog.has_history(), catalog.candidates()};
    if (!catalog.current_problem.empty()) log.warning("{}", catalog.current_problem);
  });
  if (failed) return *failed;
  return from_numbers(broadcast_numbers(world, to_numbers(mine)));
}

std::vector<std::string> folders_of(const Findings& findings) {
  std::vector<std::string> folders;
  for (const CheckpointId& id : findings.candidates) folders.push_back(id.folder());
  return folders;
}

Error none_usable(const std::string& dir, const std::vector<std::string>& reasons) {
  std::string message = fmt::format("none of the checkpoints in {} can be used", dir);
  for (const std::string& reason : reasons) message += "; " + reason;
  return Error(ErrorKind::kNoCheckpoint, message,
               "`fourfold ckpt verify` says what is damaged; to start anew, choose another run "
               "folder");
}

}  // namespace

std::optional<Error> CheckpointStore::load_one(Communicator& world, std::span<StateTensor> tensors,
                                               const std::string& name, Loaded& loaded,
                                               bool& fits) {
  const std::string folder = join_path(dir_, name);
  Manifest manifest;
  std::string config;
  if (auto damage = run_together(world, [&] {
        manifest = read_manifest(fs_, folder).value();
        config = read_config(fs_, folder, manifest).value();
      })) {
    return damage;
  }
  // A checkpoint that is whole but of another model is no reason to look for an older one.
  const auto mismatch = agree(world, compare_tensors(manifest, tensors));
  fits = !mismatch;
  if (mismatch) return mismatch;
  if (auto damage = run_together(world, [&] { read_tensors(fs_, folder, manifest, tensors); })) {
    return damage;
  }
  loaded.meta = manifest.meta;
  loaded.meta.config_toml = std::move(config);
  loaded.id = manifest.id;
  loaded.incarnation = manifest.id.incarnation;
  loaded.manifest = std::move(manifest);
  return std::nullopt;
}

Result<Loaded> CheckpointStore::load_first_usable(Communicator& world,
                                                  std::span<StateTensor> tensors,
                                                  const std::vector<std::string>& folders) {
  Loaded loaded;
  for (const std::string& folder : folders) {
    bool fits = true;
    const auto failed = load_one(world, tensors, folder, loaded, fits);
    if (!failed) return loaded;
    if (!fits) return *failed;
    loaded.skipped.push_back(fmt::format("{}: {}", folder, failed->what()));
    if (world.rank() == 0) log_.warning("passing over checkpoint {}", loaded.skipped.back());
  }
  return none_usable(dir_, loaded.skipped);
}

Result<std::optional<Loaded>> CheckpointStore::load_latest(Communicator& world,
                                                           std::span<StateTensor> tensors) try {
  const auto found = find_candidates(world, fs_, dir_, log_);
  if (!found) return found.error();
  if (!found.value().history) return std::optional<Loaded>();
  auto loaded = load_first_usable(world, tensors, folders_of(found.value()));
  if (!loaded) return loaded.error();
  const CheckpointId id = loaded.value().id;
  std::int64_t incarnation = id.incarnation;
  const auto failed = run_on_first(world, [&] {
    incarnation = incarnation_after(read_catalog(fs_, dir_), id);
    if (!loaded.value().skipped.empty()) set_current(fs_, dir_, id);
    for (const std::string& name : abandon_newer(fs_, dir_, id)) {
      log_.warning("{} is newer than what was loaded: renamed {}{}", name, kAbandonedPrefix, name);
    }
  });
  // The state is loaded all the same; a disk that takes no rename will be heard of at the next
  // save.
  if (failed && world.rank() == 0) log_.warning("{}", failed->what());
  loaded.value().incarnation = static_cast<int>(broadcast_numbers(world, {incarnation})[0]);
  return std::optional<Loaded>(std::move(loaded).value());
} catch (const Error& error) {
  return error;
}

Result<Loaded> CheckpointStore::load(Communicator& world, const std::string& folder,
                                     std::span<StateTensor> tensors) try {
  if (!folder.empty()) return load_first_usable(world, tensors, {folder});
  const auto found = find_candidates(world, fs_, dir_, log_);
  if (!found) return found.error();
  if (found.value().candidates.empty()) {
    return Error(ErrorKind::kNoCheckpoint, "no checkpoint in " + dir_,
                 "`fourfold ckpt ls` lists what is there");
  }
  return load_first_usable(world, tensors, folders_of(found.value()));
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
