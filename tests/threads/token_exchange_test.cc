// Tokens on their way to experts and back on thread ranks: each comes back as the sum over x, and
// dropping duplicates changes the bytes of the all-to-all alone.
#include "parallel/token_exchange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <regex>
#include <utility>

#include "comm/thread_world.h"
#include "device/tensors.h"
#include "layout/expert_grid.h"
#include "layout/region.h"

namespace fourfold {
namespace {

struct Case {
  GridShape shape;
  int ranks;         ///< Over experts.
  int multiple = 1;  ///< Of which the tokens between any two ranks are.
  int chunks = 1;
  ExpertPlacement placement = ExpertPlacement::kContiguous;
  Lane lane = Lane::kCaller;
  DType dtype = DType::kF32;
  int ranks_on_node = 0;  ///< Not 0: the exchange goes by node first.
  const char* order = "yxzd";

  Grid grid() const { return Grid(shape, order); }
};

std::string name_of(const Case& c) {
  return c.shape.name() + " e" + std::to_string(c.ranks) + " chunks " + std::to_string(c.chunks) +
         " nodes of " + std::to_string(c.ranks_on_node) + " " + c.order;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {{3, 1, 2, 1}, 2},
      {{3, 1, 2, 1}, 2, 1, 3, ExpertPlacement::kInterleaved, Lane::kReduce},
      {{2, 1, 2, 2}, 4, 1, 1, ExpertPlacement::kInterleaved},
      {{2, 2, 2, 1}, 2, 1, 2},
      {{1, 1, 1, 4}, 4, 1, 2, ExpertPlacement::kContiguous, Lane::kReduce},
      {{3, 1, 1, 1}, 1},
      {{1, 2, 1, 1}, 1, 1, 3},
      {{2, 1, 2, 1}, 1, 1, 2},
      {{3, 1, 2, 1}, 2, 1, 1, ExpertPlacement::kContiguous, Lane::kCaller, DType::kBF16},
      // By node first: two and three nodes of two, two of three, with x as well, ranks of a node
      // that are no neighbours in the group.
      {.shape = {1, 1, 4, 1}, .ranks = 4, .ranks_on_node = 2},
      {.shape = {1, 1, 6, 1}, .ranks = 6, .chunks = 2, .lane = Lane::kReduce, .ranks_on_node = 2},
      {.shape = {1, 1, 6, 1}, .ranks = 6, .dtype = DType::kBF16, .ranks_on_node = 3},
      {.shape = {2, 1, 4, 1}, .ranks = 4, .ranks_on_node = 4},
      {.shape = {1, 1, 2, 3}, .ranks = 6, .ranks_on_node = 3, .order = "dzxy"},
      // One stage is all there is: each node has one of the expert ranks, or one node has all.
      {.shape = {1, 1, 2, 2}, .ranks = 2, .ranks_on_node = 1},
      {.shape = {1, 1, 2, 2}, .ranks = 2, .ranks_on_node = 2}};
  return kCases;
}

constexpr int kExperts = 9;
constexpr std::int64_t kColumns = 5;

/// What the tokens of a (z, data) rank choose: each has some with each expert but one, which has
/// none, and drops one in seven.
std::vector<std::int32_t> chosen_of(const Case& c, int rank) {
  std::vector<std::int32_t> chosen;
  for (int i = 0; i < 23 + 5 * rank; ++i) {
    const int e = (i * i + 3 * rank) % kExperts;
    chosen.insert(chosen.end(), c.multiple, i % 7 == 3 || e == 4 ? -1 : e);
  }
  return chosen;
}

/// A small whole number, so that sums are exact in any order.
float value_of(int rank, std::int64_t assignment, std::int64_t column) {
  return static_cast<float>((31 * rank + 7 * assignment + 3 * column) % 11);
}
/// A fraction.
float fraction_of(int rank, std::int64_t assignment, std::int64_t column) {
  return 1 / (1 + value_of(rank, assignment, column)) + 1e-3f * static_cast<float>(assignment);
}
using ValueOf = float (*)(int, std::int64_t, std::int64_t);

/// Whose rows and which.
using Sources = std::vector<std::pair<int, std::int64_t>>;

at::Tensor rows_of_sources(const Sources& sources, std::int64_t columns, DType dtype,
                           ValueOf value) {
  const auto count = static_cast<std::int64_t>(sources.size());
  const at::Tensor rows = empty_tensor({count, columns}, DType::kF32);
  auto* next = elements<float>(rows);
  for (const auto& [rank, assignment] : sources) {
    for (std::int64_t c = 0; c < columns; ++c) *next++ = value(rank, assignment, c);
  }
  return as_type(rows, dtype);
}

/// The rows that a rank's chunk of experts gets, in the promised order.
Sources wanted_at_experts(const Case& c, const ParallelContext& context, const ExpertMap& map,
                          int number) {
  const ExpertGrid grid(c.shape, c.ranks);
  const std::vector<int>& mine = map.of_rank(grid.place(context.coords()).rank);
  const Range part = split_range(static_cast<std::int64_t>(mine.size()), c.chunks, number);
  Sources sources;
  for (auto slot = part.begin; slot < part.end; ++slot) {
    for (const Coords& peer : grid.rank_peers(context.coords())) {
      const int from = peer.z + c.shape.z * peer.data;
      const std::vector<std::int32_t> chosen = chosen_of(c, from);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        const bool here = chosen[i] == mine[static_cast<std::size_t>(slot)];
        if (here) sources.emplace_back(from, i);
      }
    }
  }
  return sources;
}

/// What one rank saw of a journey there and back.
struct Journey {
  at::Tensor came_back;        ///< [assignments, columns], zeros where dropped.
  std::int64_t sent_rows = 0;  ///< By the all-to-all to the experts.
  std::int64_t bytes = 0;      ///< Of all-to-alls, both ways.
};

/// Of all-to-alls in the lines of a trace from `begin` on.
std::int64_t all_to_all_bytes(const std::vector<std::string>& trace, std::size_t begin) {
  static const std::regex kLine(R"(all_to_all #\d+ over .* step \d+ (\d+) B)");
  std::int64_t bytes = 0;
  for (std::size_t i = begin; i < trace.size(); ++i) {
    std::smatch found;
    if (std::regex_search(trace[i], found, kLine)) bytes += std::stoll(found[1]);
  }
  return bytes;
}

/// What the ranks over x do with tokens that all of them have, or that are cut over them.
enum class Way { kDropDuplicates, kSendAll, kCut };

Async<Journey> travel(const Case& c, const ParallelContext& context, Way way, ValueOf value) {
  const int rank = context.coords().z + c.shape.z * context.coords().data;
  const ExpertMap map(kExperts, c.ranks, c.placement);
  const std::vector<std::int32_t> chosen = chosen_of(c, rank);
  const SendOrder order(chosen, map, c.chunks);
  const TokenExchange exchange(context,
                               RowExchange(context, c.ranks, c.ranks_on_node > 0, c.ranks_on_node),
                               way == Way::kDropDuplicates, way == Way::kCut ? 1 : 0);
  const auto all = static_cast<std::int64_t>(chosen.size());
  const ExchangeParts parts{c.shape.x, context.coords().x, 1};
  const Range own = way == Way::kCut ? parts.of_tokens(all, parts.own) : Range{0, all};
  const ExchangePlan plan = co_await exchange.plan(order, c.lane);
  const std::size_t traced = context.grid.world().trace().size();
  const at::Tensor returned = empty_tensor({plan.returned_rows, kColumns}, c.dtype);
  Journey journey;
  for (int n = 0; n < c.chunks; ++n) {
    const ExchangeChunk& chunk = plan.chunks[static_cast<std::size_t>(n)];
    Sources sent;
    for (const std::int32_t a : chunk.sent) sent.emplace_back(rank, own.begin + a);
    std::vector<at::Tensor> rows{rows_of_sources(sent, kColumns, c.dtype, value),
                                 rows_of_sources(sent, 1, c.dtype, value)};
    journey.sent_rows += rows[0].size(0);
    const std::vector<at::Tensor> arrived =
        co_await exchange.to_experts(chunk, std::move(rows), c.lane);
    const Sources wanted = wanted_at_experts(c, context, map, n);
    for (const at::Tensor& a : arrived) {
      EXPECT_TRUE(a.equal(rows_of_sources(wanted, a.size(1), c.dtype, value))) << "chunk " << n;
    }
    const at::Tensor back =
        rows_of(returned, chunk.returned_first, chunk.returned_first + chunk.returned_rows());
    const at::Tensor partial = exchange.room_at_experts(chunk, back);
    partial.copy_(arrived[0].mul(1.0 + context.coords().x));
    co_await exchange.from_experts(chunk, partial, back, c.lane);
  }
  journey.bytes = all_to_all_bytes(context.grid.world().trace(), traced);
  journey.came_back = zero_tensor({static_cast<std::int64_t>(chosen.size()), kColumns}, c.dtype);
  for (std::int64_t i = 0; i < own.size(); ++i) {
    const std::int32_t place = plan.place[static_cast<std::size_t>(i)];
    EXPECT_EQ(place < 0, chosen[static_cast<std::size_t>(own.begin + i)] < 0);
    if (place >= 0) journey.came_back.select(0, own.begin + i).copy_(returned.select(0, place));
  }
  co_return journey;
}

std::vector<Journey> travel_on_ranks(const Case& c, Way way, ValueOf value) {
  std::vector<Journey> journeys(static_cast<std::size_t>(c.shape.size()));
  run_thread_ranks(c.shape.size(), {.trace_length = 4096}, [&](Communicator& world) {
    ProcessGrid grid(c.grid(), world);
    const ParallelContext context{grid, c.dtype};
    journeys[static_cast<std::size_t>(world.rank())] = run_to_end(travel(c, context, way, value));
  });
  return journeys;
}

TEST(TokenExchange, EachRowComesBackSummedOverX) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    for (const Way way : {Way::kDropDuplicates, Way::kSendAll, Way::kCut}) {
      const std::vector<Journey> journeys = travel_on_ranks(c, way, value_of);
      for (int r = 0; r < c.shape.size(); ++r) {
        const Coords at = c.grid().coords(WorldRank(r));
        const int rank = at.z + c.shape.z * at.data;
        const std::vector<std::int32_t> chosen = chosen_of(c, rank);
        Sources all;
        for (std::size_t i = 0; i < chosen.size(); ++i) all.emplace_back(rank, i);
        const at::Tensor wanted = rows_of_sources(all, kColumns, c.dtype, value_of);
        wanted.mul_(c.shape.x * (c.shape.x + 1) / 2.0);
        const auto count = static_cast<std::int64_t>(chosen.size());
        const Range own = ExchangeParts{c.shape.x, at.x, 1}.of_tokens(count, at.x);
        for (std::int64_t i = 0; i < count; ++i) {
          const bool others = way == Way::kCut && (i < own.begin || i >= own.end);
          if (others || chosen[static_cast<std::size_t>(i)] < 0) wanted.select(0, i).zero_();
        }
        EXPECT_TRUE(journeys[static_cast<std::size_t>(r)].came_back.equal(wanted)) << "rank " << r;
      }
    }
  }
}

TEST(TokenExchange, DroppingDuplicatesChangesNoBit) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const std::vector<Journey> with = travel_on_ranks(c, Way::kDropDuplicates, fraction_of);
    const std::vector<Journey> without = travel_on_ranks(c, Way::kSendAll, fraction_of);
    for (std::size_t r = 0; r < with.size(); ++r) {
      const at::Tensor &a = with[r].came_back, &b = without[r].came_back;
      ASSERT_EQ(a.nbytes(), b.nbytes());
      EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << "rank " << r;
      EXPECT_GT(a.abs().max().item<float>(), 0);
    }
  }
}

/// A row there, in both tensors, and back, in one.
std::int64_t bytes_of_a_row(const Case& c) { return (2 * kColumns + 1) * dtype_size(c.dtype); }

/// Whether a row is moved twice each way, by way of another rank: that rank's bytes are others'.
bool passes_through(const Case& c) {
  return c.ranks_on_node > 0 && ExpertNodes(c.grid(), {}, c.ranks, c.ranks_on_node).staged();
}

TEST(TokenExchange, EachXSendsItsPartOfTheBytes) {
  for (Case c : cases()) {
    if (c.ranks == 1 || passes_through(c)) continue;  // Nothing travels.
    c.multiple = c.shape.x;
    SCOPED_TRACE(name_of(c));
    const std::vector<Journey> with = travel_on_ranks(c, Way::kDropDuplicates, value_of);
    const std::vector<Journey> without = travel_on_ranks(c, Way::kSendAll, value_of);
    for (std::size_t r = 0; r < with.size(); ++r) {
      EXPECT_EQ(with[r].sent_rows * c.shape.x, without[r].sent_rows);
      EXPECT_EQ(with[r].bytes * c.shape.x, without[r].bytes);
      EXPECT_GT(with[r].bytes, 0);
    }
  }
}

TEST(TokenExchange, PartsOfTheBytesThatDoNotDivide) {
  for (const Case& c : cases()) {
    if (c.ranks == 1 || passes_through(c)) continue;
    SCOPED_TRACE(name_of(c));
    const std::vector<Journey> with = travel_on_ranks(c, Way::kDropDuplicates, value_of);
    const std::vector<Journey> without = travel_on_ranks(c, Way::kSendAll, value_of);
    const Grid grid = c.grid();
    for (int r = 0; r < c.shape.size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      std::int64_t rows = 0;
      for (const WorldRank other : grid.group(grid.coords(WorldRank(r)), {Axis::kX})) {
        rows += with[static_cast<std::size_t>(other.value)].sent_rows;
      }
      EXPECT_EQ(rows, without[i].sent_rows);
      // Less than a row more or less to each rank, from each, in each chunk.
      const double part = static_cast<double>(without[i].bytes) / c.shape.x;
      const auto slack = static_cast<double>(c.ranks * c.chunks * bytes_of_a_row(c));
      EXPECT_NEAR(static_cast<double>(with[i].bytes), part, slack);
      EXPECT_LE(with[i].bytes, without[i].bytes);
    }
  }
}

/// Of all-to-alls between nodes, or of those among all expert ranks, by group's name in the trace.
TEST(TokenExchange, ByNodeFirstSendsFewerMessagesBetweenNodes) {
  const Case c{.shape = {1, 1, 6, 1}, .ranks = 6, .ranks_on_node = 2};
  run_thread_ranks(c.shape.size(), {.trace_length = 4096}, [&](Communicator& world) {
    ProcessGrid grid(c.grid(), world);
    const ParallelContext context{grid, c.dtype};
    run_to_end(travel(c, context, Way::kDropDuplicates, value_of));
    int on_node = 0, between = 0, all = 0;
    for (const std::string& line : world.trace()) {
      if (line.find("all_to_all") == std::string::npos) continue;
      on_node += line.find("over experts on the node") != std::string::npos;
      between += line.find("over experts between nodes") != std::string::npos;
      all += line.find("over 6 expert ranks") != std::string::npos;
    }
    EXPECT_EQ(all, 1) << "the counts";
    EXPECT_EQ(on_node, 4) << "what passes, two tensors there, one back";
    EXPECT_EQ(between, 3);
  });
}

TEST(TokenExchange, ByNodeFirstNeedsEvenNodes) {
  run_thread_ranks(4, {}, [&](Communicator& world) {
    ProcessGrid grid(Grid({1, 1, 4, 1}), world);
    const ParallelContext context{grid, DType::kF32};
    try {
      RowExchange(context, 4, true, 3);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    }
    RowExchange(context, 4, false, 3);
  });
}

}  // namespace
}  // namespace fourfold
