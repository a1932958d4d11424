#include "layout/exchange_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "layout/region.h"

namespace fourfold {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class Rows>
std::int64_t sum(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// What each sending rank has for the experts of a chunk: counts[rank][expert of the chunk].
using Told = std::vector<std::vector<std::int64_t>>;

/// Fills the receiving side: which rows come from where, and where they stand by expert.
void plan_arrival(const Told& told, int x_ranks, int x, ExchangeChunk& chunk) {
  const std::size_t experts = told.front().size();
  // Where the rows of each expert from each rank begin.
  std::vector<std::vector<std::int64_t>> first(told.size(), std::vector<std::int64_t>(experts));
  std::int64_t row = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::int64_t begin = row;
    for (std::size_t from = 0; from < told.size(); ++from) {
      first[from][e] = row;
      row += told[from][e];
    }
    chunk.rows_of_expert.push_back(row - begin);
  }
  chunk.expert_row.reserve(at(row));
  for (int part = 0; part < x_ranks; ++part) {
    for (std::size_t from = 0; from < told.size(); ++from) {
      const Range mine = split_range(sum(told[from]), x_ranks, part);
      if (part == x) chunk.receive.push_back(mine.size());
      std::int64_t offset = 0;  // Of an expert's rows among those of the sender.
      for (std::size_t e = 0; e < experts; ++e) {
        const std::int64_t count = told[from][e];
        const std::int64_t begin = std::max(mine.begin, offset);
        const std::int64_t end = std::min(mine.end, offset + count);
        for (std::int64_t i = begin; i < end; ++i) {
          chunk.expert_row.push_back(static_cast<std::int32_t>(first[from][e] + i - offset));
        }
        offset += count;
      }
    }
    chunk.arrived.push_back(chunk.expert_rows() - sum(chunk.arrived));
  }
}

/// Fills the sending side, and where its rows come back.
void plan_departure(const SendOrder& order, int number, int x_ranks, int x, ExchangeChunk& chunk,
                    std::vector<std::int32_t>& place) {
  std::int64_t row = chunk.returned_first;
  for (int part = 0; part < x_ranks; ++part) {
    const std::int64_t begin = row;
    for (int rank = 0; rank < order.map().ranks(); ++rank) {
      const auto rows = order.to_rank(number, rank);
      const Range cut = split_range(static_cast<std::int64_t>(rows.size()), x_ranks, part);
      const auto mine = rows.subspan(at(cut.begin), at(cut.size()));
      for (const std::int32_t assignment : mine) {
        place[at(assignment)] = static_cast<std::int32_t>(row++);
      }
      if (part != x) continue;
      chunk.send.push_back(cut.size());
      chunk.sent.insert(chunk.sent.end(), mine.begin(), mine.end());
    }
    chunk.returned.push_back(row - begin);
  }
}

}  // namespace

SendOrder::SendOrder(std::span<const std::int32_t> chosen, const ExpertMap& map, int chunks)
    : map_(&map),
      chunks_(chunks),
      assignments_(static_cast<std::int64_t>(chosen.size())),
      counts_(at(map.experts())) {
  for (const std::int32_t e : chosen) {
    if (e >= 0) ++counts_[at(e)];
  }
  std::vector<std::int64_t> next(counts_.size());  // Where an expert's next assignment goes.
  std::int64_t row = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int rank = 0; rank < map.ranks(); ++rank) {
      begins_.push_back(row);
      const std::vector<int>& experts = map.of_rank(rank);
      const Range part = split_range(static_cast<std::int64_t>(experts.size()), chunks, chunk);
      for (auto slot = part.begin; slot < part.end; ++slot) {
        next[at(experts[at(slot)])] = row;
        row += counts_[at(experts[at(slot)])];
      }
    }
  }
  begins_.push_back(row);
  order_.resize(at(row));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= 0) order_[at(next[at(chosen[i])]++)] = static_cast<std::int32_t>(i);
  }
}

std::vector<std::int64_t> SendOrder::counts_to_tell() const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < map_->ranks(); ++rank) {
    for (const int e : map_->of_rank(rank)) counts.push_back(count(e));
  }
  return counts;
}

std::vector<std::int64_t> SendOrder::experts_of_ranks() const {
  std::vector<std::int64_t> experts;
  for (int rank = 0; rank < map_->ranks(); ++rank) {
    experts.push_back(static_cast<std::int64_t>(map_->of_rank(rank).size()));
  }
  return experts;
}

std::span<const std::int32_t> SendOrder::to_rank(int chunk, int rank) const {
  const std::size_t i = at(chunk * map_->ranks() + rank);
  return std::span(order_).subspan(at(begins_[i]), at(begins_[i + 1] - begins_[i]));
}

std::int64_t ExchangeChunk::returned_rows() const { return sum(returned); }

ExchangePlan plan_exchange(const SendOrder& order, int my_rank, std::span<const std::int64_t> told,
                           int x_ranks, int x) {
  const auto mine = static_cast<std::int64_t>(order.map().of_rank(my_rank).size());
  FF_CHECK(static_cast<std::int64_t>(told.size()) == mine * order.map().ranks(),
           "{} counts of {} experts", told.size(), mine);
  ExchangePlan plan;
  plan.place.assign(at(order.assignments()), -1);
  for (int number = 0; number < order.chunks(); ++number) {
    const Range experts = split_range(mine, order.chunks(), number);
    Told of_chunk;
    for (int from = 0; from < order.map().ranks(); ++from) {
      const auto row = told.subspan(at(from * mine + experts.begin), at(experts.size()));
      of_chunk.emplace_back(row.begin(), row.end());
    }
    ExchangeChunk& chunk = plan.chunks.emplace_back();
    chunk.returned_first = plan.returned_rows;
    plan_arrival(of_chunk, x_ranks, x, chunk);
    plan_departure(order, number, x_ranks, x, chunk, plan.place);
    plan.returned_rows += chunk.returned_rows();
  }
  return plan;
}

}  // namespace fourfold
