#include "parallel/parameter.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/random.h"
#include "layout/expert_grid.h"

namespace fourfold {
namespace {

std::int64_t block_rows(const Parameter& p) { return p.block.dims[0].size(); }
std::int64_t stored_rows(const Parameter& p) { return p.stored.dims[0].size(); }

std::int64_t block_cols(const Parameter& p) {
  return p.block.dims.size() > 1 ? p.block.dims[1].size() : 1;
}

at::Tensor updated_part(const Parameter& p, const at::Tensor& stored) {
  const std::int64_t first = p.updated.dims[0].begin - p.stored.dims[0].begin;
  return rows_of(stored, first, first + p.updated.dims[0].size());
}

}  // namespace

at::Tensor Parameter::updated_weight() const { return updated_part(*this, weight); }
at::Tensor Parameter::updated_gradient() const { return updated_part(*this, gradient); }

ParameterGroup::ParameterGroup(const ParallelContext& context, std::vector<ParameterSpec> specs,
                               std::string name)
    : context_(context), name_(std::move(name)) {
  FF_CHECK(!specs.empty(), "a group of no parameters");
  if (name_.empty()) name_ = specs.front().name;
  for (ParameterSpec& spec : specs) {
    Parameter p;
    const Grid& grid = context.shape();
    const Coords at = context.coords();
    p.block = spec.layout.block(grid, at);
    p.stored = spec.layout.stored(grid, at);
    p.updated = spec.layout.updated(grid, at, context.zero);
    const ExpertGrid experts(grid.shape(), spec.layout.expert_ranks);
    p.counted =
        spec.layout.replica(grid, at) == 0 && (context.zero || experts.place(at).replica == 0);
    p.spec = std::move(spec);
    parameters_.push_back(std::move(p));
    rows_ += block_rows(parameters_.back());
    cols_ = block_cols(parameters_.back());
  }
  allocate();
  for (Parameter& p : parameters_) initialise(p);
}

void ParameterGroup::allocate() {
  std::int64_t stored = 0;
  for (const Parameter& p : parameters_) {
    FF_CHECK(block_cols(p) == cols_, "{} has {} columns, its group {}", p.spec.name, block_cols(p),
             cols_);
    stored += stored_rows(p);
  }
  weights_ = empty_tensor({stored, cols_}, context_.compute);
  if (context_.trains) gradients_ = zero_tensor({stored, cols_}, DType::kF32);
  std::int64_t row = 0;
  for (Parameter& p : parameters_) {
    p.weight = rows_of(weights_, row, row + stored_rows(p));
    if (context_.trains) p.gradient = rows_of(gradients_, row, row + stored_rows(p));
    row += stored_rows(p);
    const std::int64_t updated = p.updated.dims[0].size();
    p.master = context_.compute == DType::kF32 ? p.updated_weight()
                                               : empty_tensor({updated, cols_}, DType::kF32);
    if (!context_.trains) continue;
    p.exp_avg = zero_tensor({updated, cols_}, DType::kF32);
    p.exp_avg_sq = zero_tensor({updated, cols_}, DType::kF32);
  }
}

void ParameterGroup::initialise(Parameter& p) {
  const Init& init = p.spec.init;
  if (init.kind != Init::Kind::kNormal) {
    const double value = init.kind == Init::Kind::kOnes ? 1 : 0;
    p.weight.fill_(value);
    p.master.fill_(value);
    return;
  }
  // The name's CRC tells the streams of two parameters apart.
  const std::uint32_t stream = crc32c(p.spec.name.data(), p.spec.name.size());
  const PhiloxKey key = philox_key(context_.seed, RandomPurpose::kInit);
  auto fill = [&](const at::Tensor& out, const Region& region) {
    std::vector<kernels::BoxDim> box;
    for (std::size_t d = 0; d < region.dims.size(); ++d) {
      box.push_back({region.dims[d].begin, region.dims[d].end, p.spec.layout.shape[d]});
    }
    kernels::fill_normal(elements<float>(out), box, key, stream, init.std);
  };
  if (context_.compute == DType::kF32) {
    fill(p.weight, p.stored);
    return;
  }
  at::Tensor whole = empty_tensor({p.weight.size(0), cols_}, DType::kF32);
  fill(whole, p.stored);
  p.weight.copy_(whole);
  p.master.copy_(updated_part(p, whole));
}

Communicator& ParameterGroup::storers() const {
  return context_.grid.storers(parameters_.front().spec.layout.expert_ranks);
}

std::vector<std::int64_t> ParameterGroup::counts_of_shards(const Parameter& p) const {
  return split_counts(block_rows(p), storers().size(), cols_);
}

std::vector<Work> ParameterGroup::start_gather_of_shards(const at::Tensor& whole, Lane lane) const {
  Communicator& storers = this->storers();
  std::vector<Work> works;
  std::int64_t row = 0;
  for (const Parameter& p : parameters_) {
    const at::Tensor out = rows_of(whole, row, row + block_rows(p));
    row += block_rows(p);
    works.push_back(
        storers.all_gather(buffer_of(p.weight), buffer_of(out), counts_of_shards(p), lane));
  }
  return works;
}

std::vector<Work> ParameterGroup::start_scatter_to_shards(const at::Tensor& whole,
                                                          const at::Tensor& part, Lane lane) const {
  Communicator& storers = this->storers();
  std::vector<Work> works;
  std::int64_t row = 0, stored = 0;
  for (const Parameter& p : parameters_) {
    const at::Tensor in = rows_of(whole, row, row + block_rows(p));
    const at::Tensor out = rows_of(part, stored, stored + stored_rows(p));
    row += block_rows(p);
    stored += stored_rows(p);
    works.push_back(storers.reduce_scatter(buffer_of(in), buffer_of(out), counts_of_shards(p),
                                           ReduceOp::kSum, lane));
  }
  return works;
}

}  // namespace fourfold
