#include "ckpt/reshard.h"

#include <fmt/core.h>

#include <map>

#include "base/units.h"
#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/new_run.h"
#include "ckpt/offline_writer.h"
#include "ckpt/tensor_reader.h"
#include "policy/model_layers.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

/// The run of a checkpoint, as it would be on the grid.
RunSpec run_on(const ReshardGrid& target, const std::string& config, const std::string& source,
               std::vector<std::string> overrides) {
  // Its own expert ranks need not fit the old grid, nor the old ones the new.
  overrides.emplace_back("parallel.expert=1");
  RunSpec run = parse_run(config, source, overrides).value();
  run.parallel.grid = target.grid;
  run.parallel.expert = target.expert;
  // The grid is not what the file says, so messages about it do not point there.
  for (Axis axis : kAllAxes) run.origins.erase(fmt::format("parallel.{}", axis_name(axis)));
  run.origins.erase("parallel.expert");
  resolve_grid(run, target.grid.size()).value();
  return run;
}

std::vector<OfflineTensor> cut(const Manifest& manifest, const RunSpec& run) {
  std::map<std::string, TensorLayout> layouts;
  for (auto& p : parameters_of(model_layers_of(run))) {
    layouts[p.name] = std::move(p.layout);
  }
  std::vector<OfflineTensor> tensors;
  for (ManifestTensor t : manifest.tensors) {
    t.version.reset();  // What is written is whole.
    if (t.cls == TensorClass::kState) {
      tensors.push_back({t, std::nullopt});
      continue;
    }
    const auto found = layouts.find(t.name);
    if (found == layouts.end() || found->second.shape != t.shape) {
      throw Error(ErrorKind::kData,
                  fmt::format("{} {} is no tensor of the model of the checkpoint's configuration",
                              t.name, Region::whole(t.shape).name()),
                  "`fourfold ckpt show` lists what it holds");
    }
    tensors.push_back({t, found->second});
  }
  return tensors;
}

}  // namespace

std::string reshard_checkpoint(Fs& fs, const std::string& checkpoint, const std::string& out,
                               const ReshardGrid& target,
                               const std::vector<std::string>& overrides) {
  const NewRun place = new_run(fs, out);
  FoundCheckpoint found = find_checkpoint(fs, checkpoint).value();
  const std::string config = read_config(fs, found.folder, found.manifest).value();
  RunSpec run = run_on(target, config, join_path(found.folder, kConfigName), overrides);
  run.dir = place.dir;
  TensorReader reader(fs, std::move(found.folder), std::move(found.manifest));

  CheckpointMeta meta = reader.manifest().meta;
  const std::string old_grid = meta.grid.name();
  meta.grid = target.grid;
  meta.order = run.parallel.order;
  meta.zero = run.memory.zero;
  meta.config_toml = resolved_toml(run);
  const std::string written =
      write_offline(fs, place.checkpoints(), meta, cut(reader.manifest(), run),
                    [&](const ManifestTensor& tensor, std::vector<std::byte>& data) {
                      reader.read(tensor, data);
                    });
  write_file_atomically(fs, place.run_file(), meta.config_toml);
  return fmt::format("resharded {} from {} to {}: {} tensors in {} files\ncheckpoint {}\n",
                     reader.folder(), old_grid, target.grid.name(),
                     reader.manifest().tensors.size(), target.grid.size(), written);
}

}  // namespace fourfold
