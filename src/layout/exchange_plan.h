#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/expert_map.h"
#include "layout/region.h"

namespace fourfold {

// How the tokens of a rank travel to their experts and back. An assignment is a token with one of
// its experts: number token·top_k + j. All of this is index arithmetic; rows are moved by
// parallel/token_exchange.h.

/// Which of the assignments of a rank's tokens each of the ranks over x sends.
struct ExchangeParts {
  int ranks = 1;
  int own = 0;
  /// Not 0: the tokens are cut over x, top_k assignments each, and a rank has and gets back the
  /// rows of its own. 0: all have all rows; what goes to an expert rank is cut evenly.
  int top_k = 0;

  bool by_token() const { return top_k > 0; }
  /// Of `assignments` those of the tokens of a part.
  Range of_tokens(std::int64_t assignments, int part) const;
};

/// Assignments in the order in which they are sent: by chunk of the experts of each rank, expert
/// rank, expert, token.
class SendOrder {
 public:
  /// `chosen`: of each assignment its expert, or -1 where it was dropped. The experts of a rank are
  /// cut into `chunks` parts (split_range).
  SendOrder(std::span<const std::int32_t> chosen, const ExpertMap& map, int chunks);

  int chunks() const { return chunks_; }
  const ExpertMap& map() const { return *map_; }
  /// Assignments that go to an expert.
  std::int64_t count(int expert) const { return counts_[static_cast<std::size_t>(expert)]; }
  /// Of all expert ranks in turn, the counts of their experts: what is told to each before its
  /// tokens come. Where tokens are cut, those of each part in turn.
  std::vector<std::int64_t> counts_to_tell(const ExchangeParts& parts) const;
  /// How many numbers that is for each.
  std::vector<std::int64_t> numbers_to_tell(const ExchangeParts& parts) const;

  /// Those of a chunk that go to a rank.
  std::span<const std::int32_t> to_rank(int chunk, int rank) const;
  std::int64_t assignments() const { return assignments_; }

 private:
  /// Of those that go to an expert, the ones in a range.
  std::int64_t count_of(int expert, Range assignments) const;

  const ExpertMap* map_;
  int chunks_;
  std::int64_t assignments_;          ///< With dropped ones.
  std::vector<std::int64_t> counts_;  ///< By expert.
  std::vector<std::int64_t> firsts_;  ///< The same: where its assignments begin in order_.
  std::vector<std::int32_t> order_;   ///< Without dropped ones.
  std::vector<std::int64_t> begins_;  ///< In order_, by chunk and rank; one more at the end.
};

/// One chunk's journey as one of the ranks over x sees it. Each of these sends a part of the rows
/// to each expert rank, cut evenly ("drop duplicates": DTD of Singh et al., arXiv 2303.06318,
/// Section 5.1) or by token, and those that received parts of the same rows gather them. On the way
/// back the parts are summed over x as they are cut.
struct ExchangeChunk {
  /// The assignment of each row that this rank sends; where tokens are cut, counted from the first
  /// of its own.
  std::vector<std::int32_t> sent;
  std::vector<std::int64_t> send, receive;  ///< Rows to and from each expert rank.
  std::vector<std::int64_t> arrived;     ///< Rows of each x that are gathered: expert ranks' parts.
  std::vector<std::int32_t> expert_row;  ///< Of each gathered row its place by expert, then by
                                         ///< sending rank, then by token.
  std::vector<std::int64_t> rows_of_expert;  ///< Of this rank's experts of the chunk.
  /// Rows of each x that come back and are gathered; where tokens are cut, this rank's alone.
  std::vector<std::int64_t> returned;
  std::int64_t returned_first = 0;  ///< Where they begin among all chunks'.
  /// Where the exchange goes by node first: rows from each expert rank of the own node to each
  /// node, that pass through this rank.
  std::vector<std::int64_t> through;

  std::int64_t expert_rows() const { return static_cast<std::int64_t>(expert_row.size()); }
  std::int64_t returned_rows() const;
};

struct ExchangePlan {
  std::vector<ExchangeChunk> chunks;
  /// Where each assignment's row comes back, among the rows of all chunks; -1 where it was dropped.
  /// Where tokens are cut, of this rank's assignments.
  std::vector<std::int32_t> place;
  std::int64_t returned_rows = 0;
};

/// `told`: from each expert rank in turn, the counts for this rank's experts (counts_to_tell).
ExchangePlan plan_exchange(const SendOrder& order, int my_rank, std::span<const std::int64_t> told,
                           const ExchangeParts& parts = {});

}  // namespace fourfold
