#include "layout/exchange_plan.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace fourfold {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class Rows>
std::int64_t sum(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// What each sending rank has for the experts of a chunk: counts[x part][rank][expert].
using Told = std::vector<std::vector<std::vector<std::int64_t>>>;

/// An even cut of rows that lie by expert: of each part its rows of each expert.
std::vector<std::vector<std::int64_t>> cut_evenly(std::span<const std::int64_t> counts, int parts) {
  std::vector<std::vector<std::int64_t>> cut;
  for (int part = 0; part < parts; ++part) {
    const Range mine = split_range(sum(counts), parts, part);
    std::vector<std::int64_t>& of_part = cut.emplace_back();
    std::int64_t offset = 0;  // Of an expert's rows.
    for (const std::int64_t count : counts) {
      const std::int64_t begin = std::max(mine.begin, offset);
      offset += count;
      of_part.push_back(std::max<std::int64_t>(0, std::min(mine.end, offset) - begin));
    }
  }
  return cut;
}

/// `told` is of all of a rank's `experts`, of which those of a chunk count.
Told told_of_chunk(std::span<const std::int64_t> told, std::int64_t experts, Range chunk,
                   int senders, const ExchangeParts& parts) {
  const int numbers = parts.by_token() ? parts.ranks : 1;
  Told of_chunk(at(parts.ranks));
  for (int from = 0; from < senders; ++from) {
    const auto of_part = [&](int part) {
      return told.subspan(at((from * numbers + part) * experts + chunk.begin), at(chunk.size()));
    };
    const auto even = cut_evenly(of_part(0), parts.ranks);
    for (int part = 0; part < parts.ranks; ++part) {
      const auto given = parts.by_token() ? of_part(part) : std::span(even[at(part)]);
      of_chunk[at(part)].emplace_back(given.begin(), given.end());
    }
  }
  return of_chunk;
}

/// Fills the receiving side: which rows come from where, and where they stand by expert: those of
/// one sending rank part by part.
void plan_arrival(const Told& told, const ExchangeParts& parts, ExchangeChunk& chunk) {
  const std::size_t senders = told.front().size(), experts = told.front().front().size();
  // Where the rows of each expert from each part of each rank begin.
  Told first = told;
  std::int64_t row = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    const std::int64_t begin = row;
    for (std::size_t from = 0; from < senders; ++from) {
      for (std::size_t part = 0; part < told.size(); ++part) {
        first[part][from][e] = row;
        row += told[part][from][e];
      }
    }
    chunk.rows_of_expert.push_back(row - begin);
  }
  chunk.expert_row.reserve(at(row));
  for (std::size_t part = 0; part < told.size(); ++part) {
    for (std::size_t from = 0; from < senders; ++from) {
      if (static_cast<int>(part) == parts.own) chunk.receive.push_back(sum(told[part][from]));
      for (std::size_t e = 0; e < experts; ++e) {
        for (std::int64_t i = 0; i < told[part][from][e]; ++i) {
          chunk.expert_row.push_back(static_cast<std::int32_t>(first[part][from][e] + i));
        }
      }
    }
    chunk.arrived.push_back(chunk.expert_rows() - sum(chunk.arrived));
  }
}

/// Those of `rows` that a part sends.
std::vector<std::int32_t> rows_of_part(std::span<const std::int32_t> rows, std::int64_t assignments,
                                       const ExchangeParts& parts, int part) {
  if (!parts.by_token()) {
    const Range cut = split_range(static_cast<std::int64_t>(rows.size()), parts.ranks, part);
    const auto mine = rows.subspan(at(cut.begin), at(cut.size()));
    return {mine.begin(), mine.end()};
  }
  const Range own = parts.of_tokens(assignments, part);
  std::vector<std::int32_t> mine;
  for (const std::int32_t a : rows) {
    if (own.begin <= a && a < own.end) mine.push_back(static_cast<std::int32_t>(a - own.begin));
  }
  return mine;
}

/// Fills the sending side, and where its rows come back.
void plan_departure(const SendOrder& order, int number, const ExchangeParts& parts,
                    ExchangeChunk& chunk, std::vector<std::int32_t>& place) {
  std::int64_t row = chunk.returned_first;
  for (int part = 0; part < parts.ranks; ++part) {
    if (parts.by_token() && part != parts.own) continue;
    const std::int64_t begin = row;
    for (int rank = 0; rank < order.map().ranks(); ++rank) {
      const auto mine = rows_of_part(order.to_rank(number, rank), order.assignments(), parts, part);
      for (const std::int32_t assignment : mine) {
        place[at(assignment)] = static_cast<std::int32_t>(row++);
      }
      if (part != parts.own) continue;
      chunk.send.push_back(static_cast<std::int64_t>(mine.size()));
      chunk.sent.insert(chunk.sent.end(), mine.begin(), mine.end());
    }
    chunk.returned.push_back(row - begin);
  }
}

}  // namespace

Range ExchangeParts::of_tokens(std::int64_t assignments, int part) const {
  const Range tokens = split_range(assignments / top_k, ranks, part);
  return {tokens.begin * top_k, tokens.end * top_k};
}

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
  firsts_ = next;
  order_.resize(at(row));
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] >= 0) order_[at(next[at(chosen[i])]++)] = static_cast<std::int32_t>(i);
  }
}

std::vector<std::int64_t> SendOrder::counts_to_tell(const ExchangeParts& parts) const {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < map_->ranks(); ++rank) {
    for (int part = 0; part < (parts.by_token() ? parts.ranks : 1); ++part) {
      for (const int e : map_->of_rank(rank)) {
        counts.push_back(parts.by_token() ? count_of(e, parts.of_tokens(assignments_, part))
                                          : count(e));
      }
    }
  }
  return counts;
}

std::int64_t SendOrder::count_of(int expert, Range assignments) const {
  const auto begin = order_.begin() + firsts_[at(expert)];
  return std::count_if(begin, begin + count(expert), [&](std::int32_t a) {
    return assignments.begin <= a && a < assignments.end;
  });
}

std::vector<std::int64_t> SendOrder::numbers_to_tell(const ExchangeParts& parts) const {
  std::vector<std::int64_t> numbers;
  for (int rank = 0; rank < map_->ranks(); ++rank) {
    numbers.push_back(static_cast<std::int64_t>(map_->of_rank(rank).size()) *
                      (parts.by_token() ? parts.ranks : 1));
  }
  return numbers;
}

std::span<const std::int32_t> SendOrder::to_rank(int chunk, int rank) const {
  const std::size_t i = at(chunk * map_->ranks() + rank);
  return std::span(order_).subspan(at(begins_[i]), at(begins_[i + 1] - begins_[i]));
}

std::int64_t ExchangeChunk::returned_rows() const { return sum(returned); }

ExchangePlan plan_exchange(const SendOrder& order, int my_rank, std::span<const std::int64_t> told,
                           const ExchangeParts& parts) {
  const auto mine = static_cast<std::int64_t>(order.map().of_rank(my_rank).size());
  const int senders = order.map().ranks();
  FF_CHECK(static_cast<std::int64_t>(told.size()) ==
               mine * senders * (parts.by_token() ? parts.ranks : 1),
           "{} counts of {} experts", told.size(), mine);
  ExchangePlan plan;
  const std::int64_t own = parts.by_token() ? parts.of_tokens(order.assignments(), parts.own).size()
                                            : order.assignments();
  plan.place.assign(at(own), -1);
  for (int number = 0; number < order.chunks(); ++number) {
    const Range experts = split_range(mine, order.chunks(), number);
    ExchangeChunk& chunk = plan.chunks.emplace_back();
    chunk.returned_first = plan.returned_rows;
    plan_arrival(told_of_chunk(told, mine, experts, senders, parts), parts, chunk);
    plan_departure(order, number, parts, chunk, plan.place);
    plan.returned_rows += chunk.returned_rows();
  }
  return plan;
}

}  // namespace fourfold
