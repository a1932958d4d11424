#include "ckpt/commands.h"

#include <fmt/core.h>

#include <map>

#include "base/units.h"
#include "ckpt/catalog.h"
#include "ckpt/retention.h"

namespace fourfold {
namespace {

constexpr const char* kRow = "{:<18} {:>9} {:>12} {:>5} {:>6} {:>11}  {}\n";

std::string last_name(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

bool has_checkpoint_names(const Fs& fs, const std::string& path) {
  const Catalog catalog = read_catalog(fs, path);
  return catalog.has_history() || !catalog.incomplete.empty();
}

std::int64_t bytes_of(const Manifest& manifest) {
  std::int64_t bytes = 0;
  for (const FileRecord& file : manifest.files) bytes += file.size;
  return bytes;
}

std::string size_problem(const Fs& fs, const std::string& folder,
                         const std::vector<FileRecord>& files) try {
  for (const FileRecord& record : files) {
    const std::int64_t size = fs.open(join_path(folder, record.name))->size();
    if (size != record.size) {
      return fmt::format("{} has {} bytes, {} were written", record.name, size, record.size);
    }
  }
  return "";
} catch (const Error& error) {
  return error.what();
}

/// What a look at names and sizes shows to be wrong, also of what is referred to; empty if nothing.
std::string quick_problem(const Fs& fs, const std::string& dir, const std::string& name,
                          const Manifest& manifest) {
  std::string problem = size_problem(fs, join_path(dir, name), manifest.files);
  for (const ReferredCheckpoint& r : manifest.referred) {
    if (!problem.empty()) break;
    problem = size_problem(fs, join_path(dir, r.id.folder()), r.files);
    if (!problem.empty()) problem = r.id.folder() + ": " + problem;
  }
  return problem;
}

std::string ls_row(const Fs& fs, const std::string& dir, const std::string& name, bool current) {
  const std::string folder = join_path(dir, name);
  std::string note = current ? "current" : "";
  const auto manifest = read_manifest(fs, folder);
  if (!manifest) {
    note += fmt::format("{}damaged: {}", note.empty() ? "" : ", ", manifest.error().what());
    return fmt::format(fmt::runtime(kRow), name, "", "", "", "", "", note);
  }
  const Manifest& m = manifest.value();
  const std::string problem = quick_problem(fs, dir, name, m);
  if (!problem.empty()) note += fmt::format("{}damaged: {}", note.empty() ? "" : ", ", problem);
  return fmt::format(fmt::runtime(kRow), name, m.id.step.value, m.meta.grid.name(), m.meta.zero,
                     m.files.size(), format_bytes(bytes_of(m)), note);
}

Error no_checkpoint(const std::string& dir) {
  return Error(ErrorKind::kNoCheckpoint, "no checkpoint in " + dir,
               "a run writes its first one after checkpoint.save_interval steps");
}

std::string tensor_lines(const Manifest& manifest) {
  std::string text;
  for (const ManifestTensor& t : manifest.tensors) {
    std::string shape;
    for (const std::int64_t n : t.shape) shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
    const bool older = t.version && *t.version != manifest.id;
    text += fmt::format("  {:<60} {:<11} {:<5} {:<7} {}{}\n", t.name, t.kind, dtype_name(t.dtype),
                        tensor_class_name(t.cls), shape.empty() ? "scalar" : shape,
                        older ? " in " + t.version->folder() : "");
  }
  return text;
}

std::string kind_lines(const Manifest& manifest) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> kinds;  // Elements and bytes.
  for (const ManifestTensor& t : manifest.tensors) {
    const std::int64_t n = Region::whole(t.shape).elements();
    auto& [elements, bytes] = kinds[t.kind];
    elements += n;
    bytes += n * dtype_size(t.dtype);
  }
  std::string text;
  for (const auto& [kind, sum] : kinds) {
    text += fmt::format("  {:<11} {:>16} elements {:>11}\n", kind, format_count(sum.first),
                        format_bytes(sum.second));
  }
  return text;
}

std::string file_lines(const std::vector<FileRecord>& files) {
  std::string text;
  for (const FileRecord& file : files) {
    text += fmt::format("  {:<40} {:>11}  crc32c {:08x}\n", file.name, format_bytes(file.size),
                        file.file_crc);
  }
  return text;
}

/// What lies in older checkpoints; empty where nothing does.
std::string referred_lines(const Manifest& manifest) {
  std::map<CheckpointId, int> tensors;
  for (const ManifestTensor& t : manifest.tensors) {
    if (t.version) ++tensors[*t.version];
  }
  std::string text;
  for (const ReferredCheckpoint& r : manifest.referred) {
    text += fmt::format("\nin {}: {} tensors (grid {}, order {}, ZeRO {})\n{}", r.id.folder(),
                        tensors[r.id], r.grid.name(), r.order, r.zero, file_lines(r.files));
  }
  return text;
}

std::string show_text(const std::string& folder, const Manifest& m) {
  std::string text = fmt::format(
      "checkpoint        {}\nstep              {}\nmodel             {}\nrun               {}\n"
      "grid              {} (order {}), ZeRO {}\nseed              {}\n"
      "next sample       {}\nthreads per rank  {}\n",
      folder, m.id.step.value, m.meta.model, m.meta.run_id, m.meta.grid.name(), m.meta.order,
      m.meta.zero, m.meta.seed, m.meta.next_sample, m.meta.intra_op_threads);
  for (const auto& [name, value] : m.meta.scalars) {
    text += fmt::format("{:<17} {}\n", name, value);
  }
  text += fmt::format("\nkinds\n{}\nfiles\n{}{}", kind_lines(m), file_lines(m.files),
                      referred_lines(m));
  return text + fmt::format("\n{} tensors\n{}", m.tensors.size(), tensor_lines(m));
}

}  // namespace

Result<CheckpointPath> find_checkpoints(const Fs& fs, const std::string& given) try {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!fs.is_directory(path)) {
    return Error(ErrorKind::kData, path + " is not a folder",
                 "name a run folder, its checkpoints/ or one step-… in it");
  }
  const std::string name = last_name(path);
  if (CheckpointId::parse(name) || fs.exists(join_path(path, kManifestName))) {
    return CheckpointPath{parent_path(path), name};
  }
  const std::string inside = join_path(path, "checkpoints");
  if (fs.is_directory(inside)) return CheckpointPath{inside, ""};
  if (name == "checkpoints" || has_checkpoint_names(fs, path)) return CheckpointPath{path, ""};
  return no_checkpoint(path);
} catch (const Error& error) {
  return error;
}

Result<FoundCheckpoint> find_checkpoint(const Fs& fs, const std::string& path) try {
  const auto found = find_checkpoints(fs, path);
  if (!found) return found.error();
  const std::string& dir = found.value().dir;
  std::vector<std::string> folders;
  if (!found.value().folder.empty()) folders.push_back(found.value().folder);
  if (folders.empty()) {
    for (const CheckpointId& id : read_catalog(fs, dir).candidates()) {
      folders.push_back(id.folder());
    }
  }
  if (folders.empty()) return no_checkpoint(dir);
  std::string reasons;
  for (const std::string& folder : folders) {
    const std::string whole = join_path(dir, folder);
    auto manifest = read_manifest(fs, whole);
    if (manifest) return FoundCheckpoint{whole, std::move(manifest).value()};
    reasons += fmt::format("; {}: {}", folder, manifest.error().what());
  }
  return Error(ErrorKind::kNoCheckpoint, "no checkpoint can be read in " + dir + reasons,
               "`fourfold ckpt verify` says more of each; copy a whole one back there");
} catch (const Error& error) {
  return error;
}

Result<std::string> checkpoint_ls(const Fs& fs, const std::string& path) try {
  const auto found = find_checkpoints(fs, path);
  if (!found) return found.error();
  const std::string& dir = found.value().dir;
  std::string text =
      fmt::format(fmt::runtime(kRow), "checkpoint", "step", "grid", "ZeRO", "files", "size", "");
  if (!found.value().folder.empty()) {
    return text + ls_row(fs, dir, found.value().folder, /*current=*/false);
  }
  const Catalog catalog = read_catalog(fs, dir);
  if (!catalog.has_history() && catalog.incomplete.empty()) return no_checkpoint(dir);
  for (const CheckpointId& id : catalog.complete) {
    text += ls_row(fs, dir, id.folder(), id == catalog.current);
  }
  const ReferredFiles referred = referred_files(fs, dir, catalog);
  for (const CheckpointId& id : catalog.incomplete) {
    text += fmt::format("{:<18} {}\n", id.folder(),
                        referred.names.contains(id)
                            ? "expert files of a checkpoint that is gone, which others refer to"
                            : "incomplete: a save that did not end");
  }
  for (const std::string& name : catalog.abandoned) {
    text += fmt::format("{:<18} abandoned: the run went back to before it\n", name);
  }
  if (!catalog.current_problem.empty()) text += catalog.current_problem + "\n";
  return text;
} catch (const Error& error) {
  return error;
}

Result<std::string> checkpoint_show(const Fs& fs, const std::string& path) try {
  const auto found = find_checkpoint(fs, path);
  if (!found) return found.error();
  return show_text(found.value().folder, found.value().manifest);
} catch (const Error& error) {
  return error;
}

Result<CheckpointMeta> checkpoint_peek(const Fs& fs, const std::string& path) try {
  const auto found = find_checkpoint(fs, path);
  if (!found) return found.error();
  const auto& [folder, manifest] = found.value();
  const auto config = read_config(fs, folder, manifest);
  if (!config) return config.error();
  CheckpointMeta meta = manifest.meta;
  meta.config_toml = config.value();
  return meta;
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
