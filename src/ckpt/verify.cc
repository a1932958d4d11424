#include <fmt/core.h>

#include <unordered_map>

#include "base/crc32c.h"
#include "base/units.h"
#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/coverage.h"
#include "ckpt/file_set.h"
#include "ckpt/retention.h"
#include "ckpt/tensor_file.h"

namespace fourfold {
namespace {

/// Reads one checkpoint and collects what is wrong with it, so that one damaged byte does not hide
/// another.
class Verifier {
 public:
  Verifier(const Fs& fs, std::string folder) : fs_(fs), folder_(std::move(folder)) {}

  void run() {
    auto manifest = read_manifest(fs_, folder_);
    if (!manifest) return complain(fmt::format("{}: {}", folder_, manifest.error().what()));
    manifest_ = std::move(manifest).value();
    const auto config = read_config(fs_, folder_, manifest_);
    if (!config) complain(config.error().what());
    for (const ManifestTensor& t : manifest_.tensors) held_[t.key()].tensor = &t;
    for (const FileSet& set : file_sets(folder_, manifest_)) {
      for (const FileRecord& record : set.files) check_file(set, record);
    }
    for (const ManifestTensor& t : manifest_.tensors) {
      const auto problem = held_[t.key()].coverage.problem(Region::whole(t.shape));
      if (problem) complain(fmt::format("{}: {}: {}", folder_, t.key(), *problem));
    }
  }

  const std::vector<std::string>& problems() const { return problems_; }

  std::string summary() const {
    if (!problems_.empty()) {
      return fmt::format("{}: DAMAGED, {} problem(s)\n", folder_, problems_.size());
    }
    const std::size_t older = manifest_.referred.size();
    return fmt::format("{}: ok, step {}, {} tensors in {} files, {}{}\n", folder_,
                       manifest_.id.step.value, manifest_.tensors.size(), manifest_.files.size(),
                       format_bytes(bytes_),
                       older == 0 ? "" : fmt::format(", and in {} older checkpoints", older));
  }

 private:
  struct Held {
    const ManifestTensor* tensor = nullptr;
    Coverage coverage;
  };

  void complain(std::string problem) { problems_.push_back(std::move(problem)); }

  void check_file(const FileSet& set, const FileRecord& record) try {
    const TensorFile file(fs_, set.folder, record);
    // The regions are all bytes behind the header, in their order.
    std::uint32_t crc = record.header_crc;
    bool whole = true;
    for (const StoredRegion& region : file.regions()) {
      // Of an older checkpoint's file, only what this one refers to.
      whole &= (set.own || lies_in(set, region)) && check_region(set, file, region, crc);
    }
    if (whole && crc != record.file_crc) {
      complain(
          fmt::format("{}: the checksum of the file is wrong", join_path(set.folder, record.name)));
    }
    if (set.own) bytes_ += record.size;
  } catch (const Error& error) {
    complain(error.what());
  }

  bool lies_in(const FileSet& set, const StoredRegion& region) const {
    const auto held = held_.find(region.key);
    return held != held_.end() && held->second.tensor->version == set.version;
  }

  bool check_region(const FileSet& set, const TensorFile& file, const StoredRegion& region,
                    std::uint32_t& crc) try {
    file.read(region, [&](const Region& box, const std::byte* data) {
      const auto bytes = static_cast<std::size_t>(box.elements() * dtype_size(region.dtype));
      crc = crc32c(data, bytes, crc);
    });
    Held* const held = lies_in(set, region) ? &held_.at(region.key) : nullptr;
    if (!held || held->tensor->dtype != region.dtype) {
      complain(fmt::format("{}: {} is no tensor of the manifest", set.folder, region.name()));
    } else {
      held->coverage.add(region.region);
    }
    return true;
  } catch (const Error& error) {
    complain(error.what());
    return false;
  }

  const Fs& fs_;
  std::string folder_;
  Manifest manifest_;
  std::unordered_map<std::string, Held> held_;
  std::vector<std::string> problems_;
  std::int64_t bytes_ = 0;
};

void verify_one(const Fs& fs, const std::string& folder, VerifyReport& report) {
  Verifier verifier(fs, folder);
  verifier.run();
  report.text += verifier.summary();
  for (const std::string& problem : verifier.problems()) {
    report.text += "  " + problem + "\n";
    report.problems.push_back(problem);
  }
}

}  // namespace

Result<VerifyReport> checkpoint_verify(const Fs& fs, const std::string& path) try {
  const auto found = find_checkpoints(fs, path);
  if (!found) return found.error();
  const std::string& dir = found.value().dir;
  VerifyReport report;
  if (!found.value().folder.empty()) {
    verify_one(fs, join_path(dir, found.value().folder), report);
    return report;
  }
  const Catalog catalog = read_catalog(fs, dir);
  const auto candidates = catalog.candidates();
  if (candidates.empty() && catalog.current_problem.empty()) {
    return Error(ErrorKind::kNoCheckpoint, "no checkpoint in " + dir,
                 "a run writes its first one after checkpoint.save_interval steps");
  }
  if (!catalog.current_problem.empty()) {
    report.problems.push_back(fmt::format("{}: {}", dir, catalog.current_problem));
    report.text += "  " + report.problems.back() + "\n";
  } else if (!catalog.current) {
    report.text += dir + ": no CURRENT, the newest checkpoint counts\n";
  }
  for (const CheckpointId& id : candidates) verify_one(fs, join_path(dir, id.folder()), report);
  const ReferredFiles referred = referred_files(fs, dir, catalog);
  for (const CheckpointId& id : catalog.incomplete) {
    if (referred.names.contains(id)) continue;  // Read with those that refer to it.
    report.text += fmt::format("{}: incomplete, a save that did not end; not read\n",
                               join_path(dir, id.folder()));
  }
  return report;
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
