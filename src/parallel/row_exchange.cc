#include "parallel/row_exchange.h"

#include <fmt/core.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "parallel/row_counts.h"

namespace fourfold {
namespace {

RowCounts in_order(const RowCounts& counts, const std::vector<int>& order) {
  RowCounts ordered;
  for (const int i : order) ordered.push_back(counts[static_cast<std::size_t>(i)]);
  return ordered;
}

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    places[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  return places;
}

/// From [a][b] to [b][a].
std::vector<int> turned(int a, int b) {
  std::vector<int> order;
  for (int j = 0; j < b; ++j) {
    for (int i = 0; i < a; ++i) order.push_back(i * b + j);
  }
  return order;
}

/// Sums of `width` numbers each.
RowCounts sums_of(const RowCounts& counts, int width) {
  RowCounts sums;
  for (auto at = counts.begin(); at != counts.end(); at += width) {
    sums.push_back(std::accumulate(at, at + width, std::int64_t{0}));
  }
  return sums;
}

/// Puts blocks of `counts` rows in another order into `out`.
void put_in_order(const at::Tensor& rows, const RowCounts& counts, const std::vector<int>& order,
                  const at::Tensor& out) {
  RowCounts begins(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), begins.begin() + 1);
  const std::int64_t row_bytes = rows.size(1) * rows.element_size();
  auto* to = static_cast<std::byte*>(out.mutable_data_ptr());
  const auto* from = static_cast<const std::byte*>(rows.const_data_ptr());
  for (const int block : order) {
    const auto i = static_cast<std::size_t>(block);
    const auto bytes = static_cast<std::size_t>(counts[i] * row_bytes);
    if (bytes > 0) std::memcpy(to, from + begins[i] * row_bytes, bytes);
    to += bytes;
  }
}

at::Tensor in_order(const at::Tensor& rows, const RowCounts& counts,
                    const std::vector<int>& order) {
  at::Tensor out = room_for(rows.size(0), rows);
  put_in_order(rows, counts, order, out);
  return out;
}

/// One all-to-all of each tensor, all at a time.
Async<std::vector<at::Tensor>> all_to_all(Communicator& peers, std::vector<at::Tensor> rows,
                                          RowCounts send, RowCounts receive, Lane lane) {
  std::vector<at::Tensor> received;
  std::vector<Work> works;
  for (const at::Tensor& r : rows) {
    received.push_back(room_for(sum(receive), r));
    works.push_back(peers.all_to_all(buffer_of(r), times(send, r.size(1)),
                                     buffer_of(received.back()), times(receive, r.size(1)), lane));
  }
  for (Work& work : works) co_await finished(std::move(work));
  co_return received;
}

}  // namespace

RowExchange::RowExchange(const ParallelContext& context, int expert_ranks, bool node_first,
                         int ranks_on_node)
    : context_(context),
      ranks_(expert_ranks),
      nodes_(context.shape(), context.coords(), expert_ranks, node_first ? ranks_on_node : 0) {
  if (nodes_.even()) return;
  throw Error(
      ErrorKind::kUsage,
      fmt::format("{} expert ranks lie unevenly on nodes of {} ranks", expert_ranks, ranks_on_node),
      "parallel.node_first_exchange needs as many on each node: choose another "
      "parallel.expert or parallel.order, or set it to false");
}

Communicator& RowExchange::on_node() const {
  return context_.grid.among_experts(ranks_, nodes_.own_node(), "experts on the node");
}

Communicator& RowExchange::between_nodes() const {
  return context_.grid.among_experts(ranks_, nodes_.at_place(nodes_.place),
                                     "experts between nodes");
}

Async<void> RowExchange::plan(std::vector<ExchangeChunk>& chunks, Lane lane) const {
  if (!nodes_.staged()) co_return;
  const auto number = static_cast<std::int64_t>(chunks.size());
  const std::int64_t each = number * nodes_.nodes();
  RowCounts tell, hear(static_cast<std::size_t>(each * nodes_.on_node()));
  for (int place = 0; place < nodes_.on_node(); ++place) {
    for (const ExchangeChunk& chunk : chunks) {
      for (const auto& node : nodes_.members) {
        tell.push_back(chunk.send[static_cast<std::size_t>(node[static_cast<std::size_t>(place)])]);
      }
    }
  }
  const RowCounts equal(static_cast<std::size_t>(nodes_.on_node()), each);
  const ConstBuffer from(tell.data(), static_cast<std::int64_t>(tell.size()), DType::kI64);
  const Buffer to{hear.data(), static_cast<std::int64_t>(hear.size()), DType::kI64};
  co_await finished(on_node().all_to_all(from, equal, to, equal, lane));
  auto next = hear.begin();
  for (int place = 0; place < nodes_.on_node(); ++place) {
    for (ExchangeChunk& chunk : chunks) {
      chunk.through.insert(chunk.through.end(), next, next + nodes_.nodes());
      next += nodes_.nodes();
    }
  }
}

Async<std::vector<at::Tensor>> RowExchange::there(const ExchangeChunk& chunk,
                                                  std::vector<at::Tensor> rows, Lane lane) const {
  if (!nodes_.staged()) {
    co_return co_await all_to_all(all(), std::move(rows), chunk.send, chunk.receive, lane);
  }
  const int nodes = nodes_.nodes(), on_node = nodes_.on_node();
  const std::vector<int> leave = nodes_.by_place(), arrive = nodes_.by_node();
  for (at::Tensor& r : rows) r = in_order(r, chunk.send, leave);
  std::vector<at::Tensor> through = co_await all_to_all(this->on_node(), std::move(rows),
                                                        sums_of(in_order(chunk.send, leave), nodes),
                                                        sums_of(chunk.through, nodes), lane);
  const std::vector<int> by_node = turned(on_node, nodes);
  for (at::Tensor& r : through) r = in_order(r, chunk.through, by_node);
  const RowCounts receive = in_order(chunk.receive, arrive);
  std::vector<at::Tensor> received = co_await all_to_all(
      between_nodes(), std::move(through), sums_of(in_order(chunk.through, by_node), on_node),
      sums_of(receive, on_node), lane);
  for (at::Tensor& r : received) r = in_order(r, receive, inverse(arrive));
  co_return received;
}

Async<void> RowExchange::back(const ExchangeChunk& chunk, const at::Tensor& rows, at::Tensor out,
                              Lane lane) const {
  if (!nodes_.staged()) {
    co_await finished(all().all_to_all(buffer_of(rows), times(chunk.receive, rows.size(1)),
                                       buffer_of(out), times(chunk.send, rows.size(1)), lane));
    co_return;
  }
  const int nodes = nodes_.nodes(), on_node = nodes_.on_node();
  const std::vector<int> leave = nodes_.by_place(), arrive = nodes_.by_node();
  const std::vector<int> by_node = turned(on_node, nodes);
  const RowCounts through = in_order(chunk.through, by_node);
  std::vector<at::Tensor> moving(1, in_order(rows, chunk.receive, arrive));
  moving = co_await all_to_all(between_nodes(), std::move(moving),
                               sums_of(in_order(chunk.receive, arrive), on_node),
                               sums_of(through, on_node), lane);
  moving[0] = in_order(moving[0], through, inverse(by_node));
  const RowCounts send = in_order(chunk.send, leave);
  moving = co_await all_to_all(this->on_node(), std::move(moving), sums_of(chunk.through, nodes),
                               sums_of(send, nodes), lane);
  put_in_order(moving[0], send, inverse(leave), out);
}

}  // namespace fourfold
