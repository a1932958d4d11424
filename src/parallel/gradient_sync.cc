#include "parallel/gradient_sync.h"

#include <utility>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"

namespace fourfold {

void GradientSync::passed(const ParameterUnit& unit) {
  passed_.push_back({&unit, scheduler_.scatters_started()});
  if (scheduler_.options().data_reduce) start_ready(Lane::kReduce);
}

void GradientSync::finish() {
  scheduler_.finish_scatters();
  start_ready(scheduler_.options().data_reduce ? Lane::kReduce : Lane::kCaller);
  while (!sums_.empty()) finish_first();
}

void GradientSync::start_ready(Lane lane) {
  while (!passed_.empty() && passed_.front().scatters <= scheduler_.scatters_finished()) {
    const ParameterUnit& unit = *passed_.front().unit;
    passed_.pop_front();
    unit.finish_gradients();
    start(unit.parameters(), lane);
  }
}

void GradientSync::sum_over_x(std::span<Parameter* const> parameters) {
  std::vector<Parameter*> of_own_rows;
  for (Parameter* p : parameters) {
    if (p->spec.rows_over_x) of_own_rows.push_back(p);
    const int parts = p->spec.layout.dims[0].parts;
    if (parts == 0) continue;
    context_.grid.sharers_of_x(parts)
        .all_reduce(buffer_of(p->gradient), ReduceOp::kSum)
        .wait_stream();
  }
  if (of_own_rows.empty()) return;
  const Bucket bucket(context_.grid.group({Axis::kData}), std::move(of_own_rows));
  const at::Tensor packed = bucket.pack(&Parameter::gradient);
  context_.grid.group({Axis::kX}).all_reduce(buffer_of(packed), ReduceOp::kSum).wait_stream();
  bucket.unpack(packed, &Parameter::gradient);
}

void GradientSync::start(std::span<Parameter* const> parameters, Lane lane) {
  sum_over_x(parameters);
  for (const Replicated& set : by_replicas(context_, parameters)) {
    if (set.replicas->size() > 1) start_sums(set, lane);
  }
}

void GradientSync::start_sums(const Replicated& set, Lane lane) {
  Communicator& replicas = *set.replicas;
  std::vector<Parameter*> small, large;
  for (Parameter* p : set.parameters) {
    (p->gradient.numel() < kPackedBelow ? small : large).push_back(p);
  }
  Sum sum{Bucket(replicas, std::move(small)), {}, {}, {}};
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (const Parameter* p : large) start_sum(replicas, *p, lane, sum, tensors, works);
  if (!sum.bucket.empty()) {
    const at::Tensor packed = sum.bucket.pack(&Parameter::gradient);
    if (context_.zero) {
      sum.sum = sum.bucket.room_of_mine(DType::kF32);
      works.push_back(replicas.reduce_scatter(buffer_of(packed), buffer_of(sum.sum),
                                              sum.bucket.counts(), ReduceOp::kSum, lane));
    } else {
      sum.sum = packed;
      works.push_back(replicas.all_reduce(buffer_of(packed), ReduceOp::kSum, lane));
    }
    tensors.insert(tensors.end(), {packed, sum.sum});
  }
  sum.in_flight = InFlight(std::move(tensors), std::move(works));
  sums_.push_back(std::move(sum));
  while (sums_.size() > kSumsInFlight) finish_first();
}

void GradientSync::start_sum(Communicator& replicas, const Parameter& p, Lane lane, Sum& sum,
                             std::vector<at::Tensor>& tensors, std::vector<Work>& works) {
  const at::Tensor target = context_.zero ? p.updated_gradient() : p.gradient;
  const at::Tensor in = as_type(p.gradient, context_.gradients);
  at::Tensor out = target;
  if (context_.gradients != DType::kF32) {
    out = context_.zero ? empty_tensor(target.sizes(), context_.gradients) : in;
    sum.rounded.emplace_back(out, target);
  }
  works.push_back(context_.zero ? replicas.reduce_scatter(buffer_of(in), buffer_of(out),
                                                          counts_of_replicas(replicas, p),
                                                          ReduceOp::kSum, lane)
                                : replicas.all_reduce(buffer_of(in), ReduceOp::kSum, lane));
  tensors.insert(tensors.end(), {in, out});
}

void GradientSync::finish_first() {
  Sum sum = std::move(sums_.front());
  sums_.pop_front();
  sum.in_flight.wait();
  for (const auto& [from, to] : sum.rounded) to.copy_(from);
  if (sum.bucket.empty()) return;
  if (context_.zero) {
    sum.bucket.unpack_mine(sum.sum, &Parameter::gradient);
  } else {
    sum.bucket.unpack(sum.sum, &Parameter::gradient);
  }
}

}  // namespace fourfold
