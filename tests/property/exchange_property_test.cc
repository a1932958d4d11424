// The exchange of tokens moved by its plan on ranks that are played one after the other: every
// expert gets its tokens in the promised order, and every token comes back to its place.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "layout/exchange_plan.h"
#include "layout/region.h"

namespace fourfold {
namespace {

using Rows = std::vector<std::int64_t>;  // Rows are numbers that say whose they are.

/// Evenly, also in the first cases, which RapidCheck keeps small.
int number(int least, int most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, most + 1));
}

std::int64_t row_id(int rank, std::size_t assignment) {
  return std::int64_t{1'000'000} * rank + static_cast<std::int64_t>(assignment);
}

/// What is exchanged and between whom: all ranks choose, all x of a rank the same.
struct Exchange {
  int ranks = number(1, 4), x_ranks = number(1, 3), chunks = number(1, 3);
  int top_k;  ///< Of tokens that are cut over x; 0: they are not.
  ExpertMap map{number(ranks, 9), ranks,
                number(0, 1) == 0 ? ExpertPlacement::kContiguous : ExpertPlacement::kInterleaved};
  std::vector<std::vector<std::int32_t>> chosen;  // By rank.
  std::vector<SendOrder> orders;
  std::vector<std::vector<ExchangePlan>> plans;  // By rank and x.

  explicit Exchange(bool cuts) : top_k(cuts ? number(1, 3) : 0) {
    // All to one expert, few experts of all, or any; some dropped, or all, or none.
    const int first = number(0, map.experts() - 1), kinds = number(1, map.experts() - first);
    const int dropped = *rc::gen::element(0, 0, 3, 10);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::int32_t>& mine = chosen.emplace_back();
      int assignments = *rc::gen::element(0, 1, number(0, 40), number(0, 40));
      if (cuts) assignments *= top_k;
      for (int i = 0; i < assignments; ++i) {
        mine.push_back(number(1, 10) <= dropped ? -1 : first + number(0, kinds - 1));
      }
      orders.emplace_back(mine, map, chunks);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<ExchangePlan>& of_x = plans.emplace_back();
      for (int x = 0; x < x_ranks; ++x) {
        of_x.push_back(plan_exchange(orders[rank], rank, told(rank), parts(x)));
      }
    }
  }

  ExchangeParts parts(int x) const { return {x_ranks, x, top_k}; }
  /// The assignments that the plan of an x speaks of.
  Range own(int rank, int x) const {
    const auto all = static_cast<std::int64_t>(chosen[rank].size());
    return top_k > 0 ? parts(x).of_tokens(all, x) : Range{0, all};
  }

  /// What the ranks tell one of them: its own part of each one's counts.
  std::vector<std::int64_t> told(int rank) const {
    std::vector<std::int64_t> counts;
    for (const SendOrder& order : orders) {
      const auto all = order.counts_to_tell(parts(0)), each = order.numbers_to_tell(parts(0));
      const auto begin = all.begin() + std::accumulate(each.begin(), each.begin() + rank, 0);
      counts.insert(counts.end(), begin, begin + each[rank]);
    }
    return counts;
  }
  const ExchangeChunk& chunk(int rank, int x, int n) const { return plans[rank][x].chunks[n]; }

  /// Whose tokens an expert rank's chunk gets, in order.
  Rows wanted(int rank, int n) const {
    const std::vector<int>& experts = map.of_rank(rank);
    const Range part = split_range(static_cast<std::int64_t>(experts.size()), chunks, n);
    Rows rows;
    for (auto slot = part.begin; slot < part.end; ++slot) {
      for (int from = 0; from < ranks; ++from) {
        for (std::size_t i = 0; i < chosen[from].size(); ++i) {
          if (chosen[from][i] == experts[slot]) rows.push_back(row_id(from, i));
        }
      }
    }
    return rows;
  }
};

/// parts[r]: what rank r sends, counts[r][t] rows to rank t. What each gets, which expects
/// expected[t][r] from r.
std::vector<Rows> all_to_all(const std::vector<Rows>& parts, const std::vector<Rows>& counts,
                             const std::vector<Rows>& expected) {
  std::vector<Rows> received(parts.size());
  for (std::size_t from = 0; from < parts.size(); ++from) {
    auto row = parts[from].begin();
    for (std::size_t to = 0; to < parts.size(); ++to) {
      RC_ASSERT(counts[from][to] == expected[to][from]);
      received[to].insert(received[to].end(), row, row + counts[from][to]);
      row += counts[from][to];
    }
    RC_ASSERT((row == parts[from].end()));
  }
  return received;
}

/// By x and rank: rows of one chunk.
using OfRanks = std::vector<std::vector<Rows>>;

/// All-gather over x: every x of a rank has the same.
Rows gather_x(const Exchange& e, const OfRanks& rows, int rank, const Rows& counts) {
  Rows all;
  for (int x = 0; x < e.x_ranks; ++x) {
    RC_ASSERT(static_cast<std::int64_t>(rows[x][rank].size()) == counts[x]);
    all.insert(all.end(), rows[x][rank].begin(), rows[x][rank].end());
  }
  return all;
}

Rows counts_of(const Exchange& e, int rank, int x, int n, bool sent) {
  return sent ? e.chunk(rank, x, n).send : e.chunk(rank, x, n).receive;
}

/// The all-to-all of each x, one way or the other.
OfRanks exchange_x(const Exchange& e, int n, const OfRanks& rows, bool out) {
  OfRanks received;
  for (int x = 0; x < e.x_ranks; ++x) {
    std::vector<Rows> counts, expected;
    for (int rank = 0; rank < e.ranks; ++rank) {
      counts.push_back(counts_of(e, rank, x, n, out));
      expected.push_back(counts_of(e, rank, x, n, !out));
    }
    received.push_back(all_to_all(rows[x], counts, expected));
  }
  return received;
}

/// To the experts: the rows of each rank by expert, which are the same on all its x.
std::vector<Rows> to_experts(const Exchange& e, int n) {
  OfRanks sent(e.x_ranks);
  for (int x = 0; x < e.x_ranks; ++x) {
    for (int rank = 0; rank < e.ranks; ++rank) {
      Rows& mine = sent[x].emplace_back();
      for (const std::int32_t a : e.chunk(rank, x, n).sent)
        mine.push_back(row_id(rank, e.own(rank, x).begin + a));
    }
  }
  const OfRanks received = exchange_x(e, n, sent, true);
  std::vector<Rows> by_expert;
  for (int rank = 0; rank < e.ranks; ++rank) {
    const ExchangeChunk& chunk = e.chunk(rank, 0, n);
    const Rows arrived = gather_x(e, received, rank, chunk.arrived);
    RC_ASSERT(static_cast<std::int64_t>(arrived.size()) == chunk.expert_rows());
    Rows& put = by_expert.emplace_back(arrived.size(), -1);
    for (std::size_t i = 0; i < arrived.size(); ++i) put.at(chunk.expert_row[i]) = arrived[i];
  }
  return by_expert;
}

/// Back: what each x of each rank has of the chunk, gathered where tokens are not cut.
OfRanks from_experts(const Exchange& e, int n, const std::vector<Rows>& by_expert) {
  OfRanks parts(e.x_ranks);
  for (int rank = 0; rank < e.ranks; ++rank) {
    const ExchangeChunk& chunk = e.chunk(rank, 0, n);
    Rows by_sender;
    for (const std::int32_t row : chunk.expert_row) by_sender.push_back(by_expert[rank].at(row));
    auto begin = by_sender.begin();
    for (int x = 0; x < e.x_ranks; begin += chunk.arrived[x++]) {
      parts[x].emplace_back(begin, begin + chunk.arrived[x]);
    }
  }
  const OfRanks back = exchange_x(e, n, parts, false);
  if (e.top_k > 0) return back;
  OfRanks returned(e.x_ranks);
  for (int rank = 0; rank < e.ranks; ++rank) {
    const Rows all = gather_x(e, back, rank, e.chunk(rank, 0, n).returned);
    for (auto& of_x : returned) of_x.push_back(all);
  }
  return returned;
}

/// What is gathered over x, and where it goes, is the same on all of them.
void check_all_x_agree(const Exchange& e) {
  for (int rank = 0; rank < e.ranks; ++rank) {
    const ExchangePlan& first = e.plans[rank][0];
    for (const ExchangePlan& other : e.plans[rank]) {
      if (e.top_k == 0) {
        RC_ASSERT(other.place == first.place);
        RC_ASSERT(other.returned_rows == first.returned_rows);
      }
      for (std::size_t n = 0; n < first.chunks.size(); ++n) {
        const ExchangeChunk &a = first.chunks[n], &b = other.chunks[n];
        RC_ASSERT(a.arrived == b.arrived);
        RC_ASSERT((a.expert_row == b.expert_row && a.rows_of_expert == b.rows_of_expert));
        RC_ASSERT(
            (e.top_k > 0 || (a.returned == b.returned && a.returned_first == b.returned_first)));
      }
    }
  }
}

void check_came_back(const Exchange& e, int rank, int x, const Rows& returned) {
  const ExchangePlan& plan = e.plans[rank][x];
  const Range own = e.own(rank, x);
  RC_ASSERT(static_cast<std::int64_t>(returned.size()) == plan.returned_rows);
  RC_ASSERT(static_cast<std::int64_t>(plan.place.size()) == own.size());
  std::set<std::int32_t> places;
  for (std::size_t i = 0; i < plan.place.size(); ++i) {
    if (e.chosen[rank][own.begin + i] < 0) {
      RC_ASSERT(plan.place[i] == -1);
      continue;
    }
    RC_ASSERT(returned.at(plan.place[i]) == row_id(rank, own.begin + i));
    RC_ASSERT(places.insert(plan.place[i]).second);
  }
  RC_ASSERT(static_cast<std::int64_t>(places.size()) == plan.returned_rows);
}

void check_journey(const Exchange& e) {
  check_all_x_agree(e);
  OfRanks returned(e.x_ranks, std::vector<Rows>(e.ranks));
  for (int n = 0; n < e.chunks; ++n) {
    const std::vector<Rows> by_expert = to_experts(e, n);
    for (int rank = 0; rank < e.ranks; ++rank) {
      const Rows wanted = e.wanted(rank, n);
      RC_ASSERT(by_expert[rank] == wanted);
      const auto& rows = e.chunk(rank, 0, n).rows_of_expert;
      RC_ASSERT(std::accumulate(rows.begin(), rows.end(), std::size_t{0}) == wanted.size());
    }
    const OfRanks back = from_experts(e, n, by_expert);
    for (int x = 0; x < e.x_ranks; ++x) {
      for (int rank = 0; rank < e.ranks; ++rank) {
        Rows& of_rank = returned[x][rank];
        RC_ASSERT(e.chunk(rank, x, n).returned_first == static_cast<std::int64_t>(of_rank.size()));
        of_rank.insert(of_rank.end(), back[x][rank].begin(), back[x][rank].end());
      }
    }
  }
  for (int x = 0; x < e.x_ranks; ++x) {
    for (int rank = 0; rank < e.ranks; ++rank) check_came_back(e, rank, x, returned[x][rank]);
  }
}

RC_GTEST_PROP(ExchangePlans, EachExpertGetsItsTokensAndAllComeBack, ()) {
  check_journey(Exchange(/*cuts=*/false));
}

RC_GTEST_PROP(ExchangePlans, SoDoTokensThatAreCutOverX, ()) {
  check_journey(Exchange(/*cuts=*/true));
}

/// Of the rows between two ranks each x sends its share, which differ by one at most.
RC_GTEST_PROP(ExchangePlans, RowsAreSentByOneXEach, ()) {
  const Exchange e(/*cuts=*/false);
  for (int rank = 0; rank < e.ranks; ++rank) {
    for (int n = 0; n < e.chunks; ++n) {
      for (int to = 0; to < e.ranks; ++to) {
        const auto rows = static_cast<std::int64_t>(e.orders[rank].to_rank(n, to).size());
        for (int x = 0; x < e.x_ranks; ++x) {
          RC_ASSERT(e.chunk(rank, x, n).send[to] == split_range(rows, e.x_ranks, x).size());
        }
      }
    }
  }
}

RC_GTEST_PROP(ExchangePlans, RowsOfExpertsAreThoseThatChoseThem, ()) {
  const Exchange e(/*cuts=*/false);
  for (int rank = 0; rank < e.ranks; ++rank) {
    std::vector<std::int64_t> rows;  // Of all chunks: of the rank's experts in their order.
    for (int n = 0; n < e.chunks; ++n) {
      const auto& part = e.chunk(rank, 0, n).rows_of_expert;
      rows.insert(rows.end(), part.begin(), part.end());
    }
    const std::vector<int>& experts = e.map.of_rank(rank);
    RC_ASSERT(rows.size() == experts.size());
    for (std::size_t slot = 0; slot < rows.size(); ++slot) {
      std::int64_t wanted = 0;
      for (const auto& chosen : e.chosen) {
        wanted += std::count(chosen.begin(), chosen.end(), experts[slot]);
      }
      RC_ASSERT(rows[slot] == wanted);
    }
  }
}

}  // namespace
}  // namespace fourfold
