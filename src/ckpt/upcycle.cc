#include "ckpt/upcycle.h"

#include <fmt/core.h>

#include <cmath>
#include <map>
#include <numbers>
#include <span>

#include "base/crc32c.h"
#include "base/philox.h"
#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/new_run.h"
#include "ckpt/tensor_reader.h"
#include "policy/model_layers.h"
#include "spec/model_identity.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

Error refused(std::string what, std::string hint) {
  return Error(ErrorKind::kUsage, std::move(what), std::move(hint));
}

/// The dense model that a model with experts comes from.
ModelSpec without_experts(ModelSpec model) {
  model.moe = {};
  return model;
}

void check(const ModelSpec& from, const ModelSpec& to) {
  if (from.moe.experts > 0) {
    throw refused("the checkpoint's model has experts already", "upcycle a dense model's");
  }
  const MoeSpec& moe = to.moe;
  if (moe.experts == 0) {
    throw refused("no experts are asked for", "say how many: --set model.moe.experts=8");
  }
  if (!(without_experts(to) == without_experts(from))) {
    throw refused("the model would be another in more than its experts",
                  "only keys of [model.moe] may be set");
  }
  if (moe.shared_experts > 0) {
    throw refused("shared experts cannot be made of an MLP", "leave model.moe.shared_experts out");
  }
  if (!moe.renormalise) {
    throw refused("a token's weights must sum to 1 for the experts to give what the MLP gave",
                  "set model.moe.renormalise=true");
  }
  if (from.ffn % moe.ffn != 0) {
    throw refused(
        fmt::format("experts of width {} cannot be cut from an MLP of {}", moe.ffn, from.ffn),
        "model.moe.ffn is the MLP's width or a divisor of it");
  }
}

/// Element i of the numbers that kernels::fill_normal gives, but for the last bits.
float normal_at(PhiloxKey key, std::uint32_t stream, std::uint64_t i) {
  const auto words = philox4x32(
      {static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(i / 4 >> 32), stream, 0}, key);
  const std::size_t pair = i % 4 / 2 * 2;
  const double u = std::ldexp(words[pair] + 0.5, -32), v = std::ldexp(words[pair + 1] + 0.5, -32);
  const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
  return static_cast<float>(radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

class Upcycler {
 public:
  Upcycler(TensorReader& reader, const RunSpec& run)
      : reader_(reader), run_(run), parts_(run.model.ffn / run.model.moe.ffn) {
    for (auto& p : parameters_of(model_layers(run.model, GridShape(), HeadLayout::kReduceLogits))) {
      parameters_[p.name] = std::move(p);
    }
  }

  void read(const ManifestTensor& tensor, std::vector<std::byte>& out) {
    const ParameterSpec& p = parameters_.at(tensor.name);
    const auto count = static_cast<std::size_t>(p.layout.elements());
    out.assign(count * sizeof(float), std::byte{0});
    if (tensor.kind != kKindMaster) return;
    const std::span<float> values(reinterpret_cast<float*>(out.data()), count);
    if (p.role == ParameterRole::kRouter) {
      draw(p, values);
    } else if (p.expert >= 0) {
      cut(p, values);
    } else {
      reader_.read(found(p.name), out);
    }
  }

 private:
  const ManifestTensor& found(const std::string& name) const {
    const std::string key = name + "@" + kKindMaster;
    const ManifestTensor* tensor = reader_.find(key);
    if (!tensor) {
      throw Error(ErrorKind::kData, fmt::format("{} has no {}", reader_.folder(), key),
                  "`fourfold ckpt show` lists what it holds");
    }
    return *tensor;
  }

  void draw(const ParameterSpec& p, std::span<float> values) const {
    const PhiloxKey key = philox_key(run_.seed, RandomPurpose::kInit);
    const std::uint32_t stream = crc32c(p.name.data(), p.name.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = p.init.std * normal_at(key, stream, i);
    }
  }

  /// An expert's share of the MLP's tensor, whose name is its own without ".experts.N".
  void cut(const ParameterSpec& p, std::span<float> values) {
    const std::string place = fmt::format(".experts.{}", p.expert);
    std::string name = p.name;
    name.erase(name.find(place), place.size());
    const ManifestTensor& whole = found(name);
    reader_.read(whole, mlp_);
    Region part = Region::whole(whole.shape);
    const std::int64_t index = p.expert % parts_, width = run_.model.moe.ffn;
    const bool down = name.find(".down_proj.") != std::string::npos;
    const bool whole_bias = down && part.dims.size() == 1;  // It is added once a token.
    if (!whole_bias) part.dims[down ? 1 : 0] = {index * width, (index + 1) * width};
    copy_region(part, Region::whole(whole.shape), mlp_.data(), part, values.data(), sizeof(float));
    if (!down || whole_bias) return;
    for (float& v : values) v *= static_cast<float>(parts_);
  }

  TensorReader& reader_;
  const RunSpec& run_;
  std::int64_t parts_;  ///< Of an MLP.
  std::map<std::string, ParameterSpec> parameters_;
  std::vector<std::byte> mlp_;
};

}  // namespace

std::string upcycle_checkpoint(Fs& fs, const std::string& checkpoint, const std::string& out,
                               const std::vector<std::string>& overrides) {
  const NewRun place = new_run(fs, out);
  FoundCheckpoint found = find_checkpoint(fs, checkpoint).value();
  const std::string config = read_config(fs, found.folder, found.manifest).value();
  const std::string source = join_path(found.folder, kConfigName);
  const RunSpec from = parse_run(config, source).value();
  RunSpec run = parse_run(config, source, overrides).value();
  run.dir = place.dir;
  check(from.model, run.model);
  TensorReader reader(fs, std::move(found.folder), std::move(found.manifest));
  Upcycler upcycler(reader, run);
  const std::string written =
      write_offline(fs, place.checkpoints(), new_run_meta(run), new_run_state(run.model),
                    [&](const ManifestTensor& tensor, std::vector<std::byte>& data) {
                      upcycler.read(tensor, data);
                    });
  write_file_atomically(fs, place.run_file(), resolved_toml(run));
  return fmt::format("upcycled {} to {}\ncheckpoint {}\nrun file {}: `fourfold train {}`\n",
                     reader.folder(), model_name(run.model), written, place.run_file(),
                     place.run_file());
}

}  // namespace fourfold
