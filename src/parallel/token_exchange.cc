#include "parallel/token_exchange.h"

#include <utility>

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/rows.h"
#include "parallel/row_counts.h"

namespace fourfold {
namespace {

std::int64_t row_bytes(const at::Tensor& rows) { return rows.size(1) * rows.element_size(); }

at::Tensor put_by_expert(const ExchangeChunk& chunk, const at::Tensor& arrived) {
  at::Tensor rows = room_for(chunk.expert_rows(), arrived);
  kernels::scatter_rows(arrived.const_data_ptr(), row_bytes(arrived), chunk.expert_row.data(),
                        chunk.expert_rows(), rows.mutable_data_ptr());
  return rows;
}

at::Tensor put_by_sender(const ExchangeChunk& chunk, const at::Tensor& by_expert) {
  at::Tensor rows = room_for(chunk.expert_rows(), by_expert);
  kernels::gather_rows(by_expert.const_data_ptr(), row_bytes(by_expert), chunk.expert_row.data(),
                       chunk.expert_rows(), rows.mutable_data_ptr());
  return rows;
}

}  // namespace

Async<ExchangePlan> TokenExchange::plan(const SendOrder& order, Lane lane) const {
  Communicator& peers = rows_.all();
  const std::vector<std::int64_t> tell = order.counts_to_tell(parts());
  const std::vector<std::int64_t> tell_each = order.numbers_to_tell(parts());
  const std::vector<std::int64_t> hear_each(tell_each.size(), tell_each[peers.rank()]);
  std::vector<std::int64_t> told(static_cast<std::size_t>(sum(hear_each)));
  const ConstBuffer from(tell.data(), sum(tell_each), DType::kI64);
  const Buffer to{told.data(), sum(hear_each), DType::kI64};
  co_await finished(peers.all_to_all(from, tell_each, to, hear_each, lane));
  ExchangePlan plan = plan_exchange(order, peers.rank(), told, parts());
  co_await rows_.plan(plan.chunks, lane);
  co_return plan;
}

Async<std::vector<at::Tensor>> TokenExchange::to_experts(const ExchangeChunk& chunk,
                                                         std::vector<at::Tensor> rows,
                                                         Lane lane) const {
  // One rank has all experts and all rows, in this order.
  if (alone()) co_return rows;
  const std::vector<at::Tensor> received = co_await rows_.there(chunk, std::move(rows), lane);
  std::vector<Work> works;
  std::vector<at::Tensor> arrived = received;
  for (std::size_t i = 0; i < arrived.size() && parts().ranks > 1; ++i) {
    arrived[i] = room_for(sum(chunk.arrived), received[i]);
    works.push_back(x().all_gather(buffer_of(received[i]), buffer_of(arrived[i]),
                                   times(chunk.arrived, received[i].size(1)), lane));
  }
  for (Work& work : works) co_await finished(std::move(work));
  for (at::Tensor& a : arrived) a = put_by_expert(chunk, a);
  co_return arrived;
}

at::Tensor TokenExchange::room_at_experts(const ExchangeChunk& chunk,
                                          const at::Tensor& returned) const {
  return alone() ? returned : room_for(chunk.expert_rows(), returned);
}

Async<void> TokenExchange::from_experts(const ExchangeChunk& chunk, const at::Tensor& partial,
                                        at::Tensor returned, Lane lane) const {
  if (alone()) {
    co_await finished(x().all_reduce(buffer_of(returned), ReduceOp::kSum, lane));
    co_return;
  }
  at::Tensor rows = put_by_sender(chunk, partial);
  const bool whole = parts().ranks == 1;
  if (whole) {
    co_await finished(x().all_reduce(buffer_of(rows), ReduceOp::kSum, lane));
  } else {
    const at::Tensor mine = room_for(sum(chunk.receive), rows);
    co_await finished(x().reduce_scatter(buffer_of(rows), buffer_of(mine),
                                         times(chunk.arrived, rows.size(1)), ReduceOp::kSum, lane));
    rows = mine;
  }
  const at::Tensor back = whole || is_cut() ? returned : room_for(sum(chunk.send), rows);
  co_await rows_.back(chunk, rows, back, lane);
  if (whole || is_cut()) co_return;
  co_await finished(x().all_gather(buffer_of(back), buffer_of(returned),
                                   times(chunk.returned, rows.size(1)), lane));
}

}  // namespace fourfold
