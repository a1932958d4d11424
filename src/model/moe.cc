#include "model/moe.h"

#include <algorithm>
#include <utility>

#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "kernels/rows.h"
#include "layout/expert_nodes.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {
namespace {

/// out[i] = rows[index[i] / divisor].
at::Tensor gather(const at::Tensor& rows, std::vector<std::int32_t> index, int divisor) {
  for (std::int32_t& i : index) i /= divisor;
  const auto count = static_cast<std::int64_t>(index.size());
  at::Tensor out = empty_tensor({count, rows.size(1)}, tensor_dtype(rows));
  kernels::gather_rows(rows.const_data_ptr(), rows.size(1) * rows.element_size(), index.data(),
                       count, out.mutable_data_ptr());
  return out;
}

/// out[t] = Σ_j rows[place[t·per_row + j]].
at::Tensor sum_of_rows(const at::Tensor& rows, const std::vector<std::int32_t>& place,
                       int per_row) {
  const auto count = static_cast<std::int64_t>(place.size()) / per_row;
  at::Tensor out = empty_tensor({count, rows.size(1)}, tensor_dtype(rows));
  with_type(tensor_dtype(rows), [&]<class T>(T) {
    kernels::sum_rows(elements<T>(rows), rows.size(1), place.data(), count, per_row,
                      elements<T>(out));
  });
  return out;
}

/// What is added to the scores of each expert for where it is.
std::vector<float> local_bias(const ParallelContext& context, const ExpertMap& map,
                              const MoeOptions& options) {
  if (options.local_bias == 0 || options.ranks_on_node == 0) return {};
  // One of the ranks that hold the same tokens chooses for all.
  const Coords chooses{0, 0, context.coords().z, context.coords().data};
  const ExpertNodes nodes(context.shape(), chooses, map.ranks(), options.ranks_on_node);
  const std::vector<int>& near = nodes.own_node();
  std::vector<float> bias;
  for (int e = 0; e < map.experts(); ++e) {
    const bool is_near = std::ranges::find(near, map.rank_of(e)) != near.end();
    bias.push_back(is_near ? options.local_bias : 0);
  }
  return bias;
}

at::Tensor rows_of_chunk(const at::Tensor& returned, const ExchangeChunk& chunk) {
  return rows_of(returned, chunk.returned_first, chunk.returned_first + chunk.returned_rows());
}

}  // namespace

Moe::Moe(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers,
         int block, const MoeOptions& options)
    : context_(context),
      stream_(context, layers.moe->router.rows_over_x),
      spec_(spec.moe),
      hidden_(split_range(spec.hidden, context.size(Axis::kY), context.coords().y).size()),
      options_(options),
      map_(layers.moe->map),
      router_(context, spec.moe, *layers.moe, block, local_bias(context, map_, options)),
      experts_(context, spec, *layers.moe),
      exchange_(context,
                RowExchange(context, map_.ranks(), options.node_first, options.ranks_on_node),
                options.drop_duplicates, stream_.cut() ? spec.moe.top_k : 0) {
  if (layers.has_mlp()) shared_ = std::make_unique<SharedExperts>(context, spec, layers);
}

void Moe::add_to(ParameterUnit& unit) {
  unit.add(router_.weights());
  unit.add(experts_.up());
  if (experts_.up_bias()) unit.add(*experts_.up_bias());
  unit.add(experts_.down());
  if (experts_.down_bias()) unit.add(*experts_.down_bias());
  if (shared_) shared_->add_to(unit);
}

Lane Moe::lane() const {
  const bool overlaps = context_.overlap && options_.chunks > 1;
  return overlaps ? Lane::kReduce : forward_lane(context_);
}

at::Tensor Moe::rows_to_send(const at::Tensor& x, const ExchangeChunk& chunk) const {
  return gather(x, chunk.sent, spec_.top_k);
}

Async<void> Moe::plan(Saved& saved) const {
  const SendOrder order(saved.router.taken, map_, options_.chunks);
  saved.plan = co_await exchange_.plan(order, lane());
  saved.chunks.resize(saved.plan.chunks.size());
}

Async<void> Moe::fetch_chunk(const at::Tensor& x, int number, Saved& saved) const {
  const auto n = static_cast<std::size_t>(number);
  const ExchangeChunk& chunk = saved.plan.chunks[n];
  std::vector<at::Tensor> sent{rows_to_send(x, chunk)};
  const bool first = !saved.chunks[n].weights.defined();  // They are kept for a second time.
  if (first) {
    const at::Tensor weights = stream_.own_of(saved.router.weights);
    sent.push_back(gather(weights.view({-1, 1}), chunk.sent, 1));
  }
  const std::vector<at::Tensor> arrived =
      co_await exchange_.to_experts(chunk, std::move(sent), lane());
  saved.chunks[n].input = arrived[0];
  if (first) saved.chunks[n].weights = arrived[1];
}

Async<void> Moe::forward_chunk(const at::Tensor& x, const Experts::Gathered& gathered, int number,
                               Saved& saved, const at::Tensor& returned) const {
  const auto n = static_cast<std::size_t>(number);
  const ExchangeChunk& chunk = saved.plan.chunks[n];
  co_await fetch_chunk(x, number, saved);
  const at::Tensor rows = rows_of_chunk(returned, chunk);
  const at::Tensor output = exchange_.room_at_experts(chunk, rows);
  co_await experts_.forward(part(chunk, number), gathered, saved.chunks[n], output);
  co_await exchange_.from_experts(chunk, output, rows, lane());
}

Async<at::Tensor> Moe::forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
  const at::Tensor own = own_rows(x, batch.rows());
  co_await router_.forward(own, batch, saved.router);
  co_await plan(saved);
  const Experts::Gathered gathered = experts_.gather();
  const at::Tensor returned = empty_tensor({saved.plan.returned_rows, hidden_}, context_.compute);
  std::vector<Async<void>> chunks;
  for (int n = 0; n < options_.chunks; ++n) {
    chunks.push_back(forward_chunk(own, gathered, n, saved, returned));
  }
  co_await all_in_turn(std::move(chunks));
  at::Tensor output = sum_of_rows(returned, saved.plan.place, spec_.top_k);
  if (!shared_) co_return output;
  const at::Tensor shared = co_await shared_->forward(x, saved.shared);
  output.add_(shared);
  co_return output;
}

void Moe::Saved::keep(const KeptActivations& kept) {
  for (Experts::Saved& chunk : chunks) {
    if (!kept.exchange) chunk.input.reset();
    if (!kept.up) chunk.up.reset();
    if (!kept.mlp) chunk.activated.reset();
  }
  if (!kept.up) shared.mlp.up.reset();
  if (!kept.mlp) shared.mlp.activated.reset();
}

Async<void> Moe::restore_chunk(const at::Tensor& x, const at::Tensor& up, int number,
                               Saved& saved) const {
  const auto n = static_cast<std::size_t>(number);
  if (!saved.chunks[n].input.defined()) co_await fetch_chunk(x, number, saved);
  co_await experts_.restore(part(saved.plan.chunks[n], number), up, saved.chunks[n]);
}

Async<void> Moe::restore(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
  const at::Tensor own = own_rows(x, batch.rows());
  at::Tensor up;
  if (!saved.chunks.front().up.defined()) up = experts_.gather_up();
  std::vector<Async<void>> chunks;
  for (int n = 0; n < options_.chunks; ++n) chunks.push_back(restore_chunk(own, up, n, saved));
  co_await all_in_turn(std::move(chunks));
  if (shared_) co_await shared_->restore(x, saved.shared);
}

/// What the chunks of a backward pass have in common.
struct Moe::BackwardPass {
  const at::Tensor& d_output;
  const Saved& saved;
  Experts::Gathered gathered;
  Experts::Targets targets;
  at::Tensor d_rows;     ///< [returned rows, hidden of this rank].
  at::Tensor d_weights;  ///< f32 [returned rows, 1].
};

Async<void> Moe::backward_chunk(const BackwardPass& pass, int number) {
  const auto n = static_cast<std::size_t>(number);
  const ExchangeChunk& chunk = pass.saved.plan.chunks[n];
  std::vector<at::Tensor> sent{rows_to_send(pass.d_output, chunk)};
  const std::vector<at::Tensor> arrived =
      co_await exchange_.to_experts(chunk, std::move(sent), lane());
  const at::Tensor d_rows = rows_of_chunk(pass.d_rows, chunk);
  const at::Tensor d_weights = rows_of_chunk(pass.d_weights, chunk);
  const Experts::Gradients gradients{exchange_.room_at_experts(chunk, d_rows),
                                     exchange_.room_at_experts(chunk, d_weights)};
  co_await experts_.backward(part(chunk, number), pass.gathered, pass.targets, arrived[0],
                             pass.saved.chunks[n], gradients);
  co_await exchange_.from_experts(chunk, gradients.input, d_rows, lane());
  co_await exchange_.from_experts(chunk, gradients.weights, d_weights, lane());
}

Async<at::Tensor> Moe::backward(const at::Tensor& x, const at::Tensor& d_output,
                                const MicroBatch& batch, const Saved& saved) {
  at::Tensor d_shared;
  if (shared_) d_shared = co_await shared_->backward(x, d_output, saved.shared);
  const std::int64_t returned = saved.plan.returned_rows;
  const BackwardPass pass{d_output,
                          saved,
                          experts_.gather_for_backward(),
                          experts_.targets(),
                          empty_tensor({returned, hidden_}, context_.compute),
                          empty_tensor({returned, 1}, DType::kF32)};
  std::vector<Async<void>> chunks;
  for (int n = 0; n < options_.chunks; ++n) chunks.push_back(backward_chunk(pass, n));
  co_await all_in_turn(std::move(chunks));
  experts_.add_gradients(pass.targets);
  at::Tensor d_x = sum_of_rows(pass.d_rows, saved.plan.place, spec_.top_k);
  // One row an assignment: dropped ones get no gradient.
  const at::Tensor d_weights =
      sum_of_rows(pass.d_weights, saved.plan.place, 1).view({d_x.size(0), spec_.top_k});
  const at::Tensor own = own_rows(x, batch.rows());
  const at::Tensor d_x_of_router = co_await router_.backward(own, batch, saved.router, d_weights);
  d_x.add_(d_x_of_router);
  if (d_shared.defined()) d_x.add_(d_shared);
  co_return d_x;
}

}  // namespace fourfold
